// EventReader: the `data` of server-sent events out of a stream of bytes that comes in pieces.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "shared/base/result.h"

namespace plimsoll {

class EventReader {
 public:
  // Called with the data of each event; false ends the reading.
  using OnEvent = std::function<bool(std::string_view data)>;

  EventReader(OnEvent on_event, std::size_t event_bytes_max);

  // True while more is wanted. Errors: Code::invalid, an event longer than allowed.
  Result<bool> feed(std::string_view bytes);

 private:
  bool take_line(std::string_view line);

  OnEvent on_event_;
  std::size_t event_bytes_max_;
  std::string line_;  // not yet ended
  std::string data_;  // of the event that is being read
  bool has_data_ = false;
  bool after_return_ = false;  // a line may end with CR, LF or both
  bool wants_more_ = true;
};

}  // namespace plimsoll
