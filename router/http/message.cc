#include "router/http/message.h"

#include <array>
#include <ctime>

#include <fmt/core.h>

namespace plimsoll {
namespace {

constexpr std::size_t kRequestIdBytesMax = 128;

struct StatusRow {
  int status;
  const char* text;
};
constexpr StatusRow kStatuses[] = {
    {100, "Continue"},
    {200, "OK"},
    {204, "No Content"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {413, "Content Too Large"},
    {415, "Unsupported Media Type"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
};

std::string head(const HttpResponse& response, const ResponseFraming& framing) {
  std::string out = fmt::format("HTTP/1.{} {} {}\r\nDate: {}\r\n", framing.http_1_0 ? 0 : 1,
                                response.status, status_text(response.status), framing.date);
  if (response.status != 204) out += "Content-Type: " + response.content_type + "\r\n";
  for (const auto& [name, value] : response.headers) {
    out += name;
    out += ": ";
    // A value never ends the line, whatever it was made from.
    for (char c : value) out += (c == '\r' || c == '\n' || c == '\0') ? ' ' : c;
    out += "\r\n";
  }
  if (!framing.keep_alive) {
    out += "Connection: close\r\n";
  } else if (framing.http_1_0) {
    out += "Connection: keep-alive\r\n";
  }
  return out;
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

const char* status_text(int status) {
  for (const StatusRow& row : kStatuses) {
    if (row.status == status) return row.text;
  }
  return "Unknown";
}

std::string response_bytes(const HttpResponse& response, const ResponseFraming& framing) {
  std::string out = head(response, framing);
  if (response.status != 204) {
    out += fmt::format("Content-Length: {}\r\n", response.body.size());
  }
  out += "\r\n";
  if (!framing.head_only && response.status != 204) out += response.body;
  return out;
}

std::string stream_head_bytes(const HttpResponse& response, const ResponseFraming& framing) {
  std::string out = head(response, framing);
  if (!framing.http_1_0) out += "Transfer-Encoding: chunked\r\n";
  return out + "\r\n";
}

std::string chunk_bytes(std::string_view data, const ResponseFraming& framing) {
  if (data.empty()) return {};  // an empty chunk would end the body
  if (framing.http_1_0) return std::string(data);
  std::string out = fmt::format("{:x}\r\n", data.size());
  out += data;
  return out + "\r\n";
}

std::string_view end_of_stream_bytes(const ResponseFraming& framing) {
  return framing.http_1_0 ? std::string_view{} : "0\r\n\r\n";
}

std::string http_date(std::int64_t seconds_since_epoch) {
  const std::time_t time = static_cast<std::time_t>(seconds_since_epoch);
  std::tm parts{};
  gmtime_r(&time, &parts);
  // Day and month names by hand: strftime's depend on the locale.
  constexpr std::array<const char*, 7> kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr std::array<const char*, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                   "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT",
                     kDays.at(static_cast<std::size_t>(parts.tm_wday)), parts.tm_mday,
                     kMonths.at(static_cast<std::size_t>(parts.tm_mon)), parts.tm_year + 1900,
                     parts.tm_hour, parts.tm_min, parts.tm_sec);
}

bool is_harmless_request_id(std::string_view id) {
  if (id.empty() || id.size() > kRequestIdBytesMax) return false;
  for (char c : id) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '-' || c == '_' || c == '.' || c == ':' || c == '/';
    if (!plain) return false;
  }
  return true;
}

std::string percent_decode(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '%' && i + 2 < text.size();
    const int high = escape ? hex_value(text[i + 1]) : -1;
    const int low = escape ? hex_value(text[i + 2]) : -1;
    if (high >= 0 && low >= 0) {
      out += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace plimsoll
