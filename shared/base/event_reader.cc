#include "shared/base/event_reader.h"

#include <utility>

#include <fmt/format.h>

namespace plimsoll {

EventReader::EventReader(OnEvent on_event, std::size_t event_bytes_max)
    : on_event_(std::move(on_event)), event_bytes_max_(event_bytes_max) {}

Result<bool> EventReader::feed(std::string_view bytes) {
  for (const char c : bytes) {
    if (!wants_more_) return false;
    const bool ends_the_same_line = c == '\n' && std::exchange(after_return_, c == '\r');
    if (ends_the_same_line) continue;
    after_return_ = c == '\r';
    if (c == '\n' || c == '\r') {
      wants_more_ = take_line(std::exchange(line_, {}));
      continue;
    }
    if (line_.size() + data_.size() >= event_bytes_max_) {
      return invalid(
          fmt::format("an event of the stream is longer than {} bytes", event_bytes_max_));
    }
    line_ += c;
  }
  return wants_more_;
}

bool EventReader::take_line(std::string_view line) {
  if (line.empty()) {
    if (!std::exchange(has_data_, false)) return true;
    return on_event_(std::exchange(data_, {}));
  }
  constexpr std::string_view kField = "data";
  if (!line.starts_with(kField)) return true;  // a comment, or a field that nobody here uses
  std::string_view value = line.substr(kField.size());
  if (!value.empty()) {
    if (value.front() != ':') return true;
    value.remove_prefix(1);
    if (value.starts_with(' ')) value.remove_prefix(1);
  }
  if (has_data_) data_ += '\n';
  data_ += value;
  has_data_ = true;
  return true;
}

}  // namespace plimsoll
