#include "shared/base/http_client.h"

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <fmt/format.h>

namespace plimsoll {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

using Parser = http::response_parser<http::string_body>;

std::string text(beast::string_view view) { return {view.data(), view.size()}; }

// One connection. Each step is asynchronous inside, so that its deadline holds.
class Exchange {
 public:
  Exchange(const HttpRequest& request, HttpUrl url)
      : request_(request), url_(std::move(url)), resolver_(io_), stream_(io_) {}

  // Until the answer's head is there.
  Status open() {
    parser_.body_limit(kHttpBodyBytesMax);
    restart_deadline();
    TRY(connect());
    TRY(write_request());
    return finish("read the answer of", run([&](auto done) {
                    http::async_read_header(stream_, buffer_, parser_, std::move(done));
                  }));
  }

  Status read_all() {
    if (parser_.is_done()) return {};
    return finish("read the answer of", run([&](auto done) {
                    http::async_read(stream_, buffer_, parser_, std::move(done));
                  }));
  }

  Status read_events(EventReader& events) {
    parser_.body_limit(boost::none);
    while (true) {
      const std::string bytes = std::exchange(parser_.get().body(), {});
      if (!TRY(events.feed(bytes)) || parser_.is_done()) return {};
      restart_deadline();
      TRY(finish("read the stream of", run([&](auto done) {
                   http::async_read_some(stream_, buffer_, parser_, std::move(done));
                 })));
    }
  }

  bool is_event_stream() {
    return parser_.get().result_int() == 200 &&
           parser_.get()[http::field::content_type].starts_with("text/event-stream");
  }

  HttpAnswer answer() {
    return {.status = static_cast<int>(parser_.get().result_int()),
            .content_type = text(parser_.get()[http::field::content_type]),
            .body = std::move(parser_.get().body())};
  }

 private:
  void restart_deadline() { deadline_ = now() + request_.timeout; }

  // Starts an operation and runs it to its end or the deadline.
  template <typename Start>
  beast::error_code run(Start start) {
    beast::error_code result = beast::error::timeout;
    bool is_done = false;
    stream_.expires_never();
    start([&](beast::error_code error, auto&&...) {
      result = error;
      is_done = true;
    });
    io_.restart();
    io_.run_until(deadline_);
    if (is_done) return result;
    resolver_.cancel();
    stream_.cancel();
    io_.restart();
    io_.run();  // the handler refers to this frame; a cancelled operation ends at once
    return beast::error::timeout;
  }

  Status finish(const char* what, beast::error_code error) {
    if (!error) return {};
    const std::string whole = fmt::format("{} {} {}: ", what, request_.method, request_.url);
    if (error == beast::error::timeout) {
      return timed_out(whole +
                       fmt::format("nothing came for {:.1f} s", to_seconds(request_.timeout)));
    }
    if (error == http::error::end_of_stream || error == http::error::partial_message) {
      return unavailable(whole + "the server closed the connection before the end");
    }
    if (error.category() == make_error_code(http::error::bad_version).category()) {
      return invalid(whole + error.message());
    }
    return unavailable(whole + error.message());
  }

  Status connect() {
    asio::ip::tcp::resolver::results_type addresses;
    TRY(finish("find the host of", run([&](auto done) {
                 resolver_.async_resolve(
                     url_.host, url_.port,
                     [&addresses, done](beast::error_code error, const auto& found) mutable {
                       addresses = found;
                       done(error);
                     });
               })));
    return finish("connect for",
                  run([&](auto done) { stream_.async_connect(addresses, std::move(done)); }));
  }

  Status write_request() {
    message_.version(11);
    message_.method_string(request_.method);
    message_.target(url_.target);
    message_.set(http::field::host, url_.host + ":" + url_.port);
    message_.set(http::field::connection, "close");
    message_.set(http::field::user_agent, "plimsoll/" PLIMSOLL_VERSION);
    if (!request_.json.empty()) {
      message_.set(http::field::content_type, "application/json");
      message_.body() = request_.json;
    }
    message_.prepare_payload();
    return finish("send",
                  run([&](auto done) { http::async_write(stream_, message_, std::move(done)); }));
  }

  const HttpRequest& request_;
  HttpUrl url_;
  asio::io_context io_{1};
  asio::ip::tcp::resolver resolver_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_{kHttpBodyBytesMax};
  http::request<http::string_body> message_;
  Parser parser_;
  TimePoint deadline_;
};

template <typename Body>
Result<HttpAnswer> guarded(const HttpRequest& request, Body body) {
  HttpUrl url = TRY(parse_http_url(request.url));
  try {
    Exchange exchange(request, std::move(url));
    TRY(exchange.open());
    TRY(body(exchange));
    return exchange.answer();
  } catch (const std::exception& error) {
    return internal_error(fmt::format("{} {}: {}", request.method, request.url, error.what()));
  }
}

}  // namespace

Result<HttpUrl> parse_http_url(std::string_view url) {
  const auto refuse = [&](const char* why) {
    return invalid(
        fmt::format("'{}' is no URL of the form http://HOST[:PORT][/...]: {}", url, why));
  };
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) return refuse("it does not begin with http://");
  const std::string_view rest = url.substr(kScheme.size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view place = rest.substr(0, slash);
  if (place.find('@') != std::string_view::npos) return refuse("it names a user");
  HttpUrl out;
  out.target = slash == rest.size() ? "/" : std::string(rest.substr(slash));
  const std::size_t bracket = place.starts_with('[') ? place.find(']') : 0;
  if (bracket == std::string_view::npos) return refuse("its bracket does not close");
  const std::size_t colon = place.find(':', bracket);
  out.host = place.substr(0, colon);
  out.port = colon == std::string_view::npos ? "80" : std::string(place.substr(colon + 1));
  if (bracket > 0) out.host = out.host.substr(1, bracket - 1);
  if (out.host.empty()) return refuse("it has no host");
  if (out.port.empty() || out.port.find_first_not_of("0123456789") != std::string::npos ||
      out.port.size() > 5) {
    return refuse("its port is no number");
  }
  return out;
}

Result<HttpAnswer> http_exchange(const HttpRequest& request) {
  return guarded(request, [](Exchange& exchange) { return exchange.read_all(); });
}

Result<HttpAnswer> http_stream(const HttpRequest& request, EventReader::OnEvent on_event) {
  return guarded(request, [&](Exchange& exchange) -> Status {
    if (!exchange.is_event_stream()) return exchange.read_all();
    EventReader events(std::move(on_event), kHttpEventBytesMax);
    return exchange.read_events(events);
  });
}

}  // namespace plimsoll
