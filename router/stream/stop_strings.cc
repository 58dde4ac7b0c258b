#include "router/stream/stop_strings.h"

#include <algorithm>
#include <utility>

namespace plimsoll {

std::string StopStrings::push(std::string_view text) {
  if (stopped_) return {};
  if (strings_.empty()) return std::string(text);
  const std::size_t old_size = held_.size();
  held_ += text;
  const std::string_view held = held_;
  // The string that is complete first wins; of two that end together, the longer.
  for (std::size_t end = old_size + 1; end <= held.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& stop : strings_) {
      if (held.substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
    }
    if (longest > 0) {
      stopped_ = true;
      return std::string(held.substr(0, end - longest));
    }
  }
  std::size_t keep = 0;
  for (const std::string& stop : strings_) {
    for (std::size_t length = std::min(stop.size() - 1, held.size()); length > keep; --length) {
      if (held.ends_with(std::string_view(stop).substr(0, length))) {
        keep = length;
        break;
      }
    }
  }
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return out;
}

std::string StopStrings::finish() {
  if (stopped_) return {};
  return std::exchange(held_, {});
}

}  // namespace plimsoll
