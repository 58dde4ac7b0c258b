// StopStrings: ends a text where the first of some strings is complete, and holds back what may
// still become one. What comes out does not depend on how the text was cut into pieces.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plimsoll {

class StopStrings {
 public:
  // None of them may be empty.
  explicit StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {}

  // The text that may be shown now. Where a string became complete, `stopped` is true from then on
  // and what follows (and the string itself) never comes out.
  std::string push(std::string_view text);
  // What was held back, at the end of the text.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> strings_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace plimsoll
