// SimulatedDevice: the memory of a device that is not there: who took how much, and what is left.
//
// Bookkeeping alone: it holds no memory. Like a real device it refuses what it does not have, and
// others may take memory of it at any time.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "shared/base/result.h"
#include "shared/base/units.h"

namespace plimsoll {

class SimulatedDevice {
 public:
  explicit SimulatedDevice(Bytes memory) : memory_(memory) {}

  // Errors: does_not_fit where less than that is left; then nothing is taken.
  Status take(std::string_view term, Bytes bytes);
  // Another process's: as much of it as is left.
  void take_by_neighbour(Bytes bytes);

  Bytes memory() const { return memory_; }
  Bytes free() const { return memory_ - taken_ - neighbour_; }
  Bytes taken() const { return taken_; }
  Bytes neighbour() const { return neighbour_; }
  const std::map<std::string, Bytes, std::less<>>& terms() const { return terms_; }

 private:
  Bytes memory_;
  Bytes taken_ = 0;
  Bytes neighbour_ = 0;
  std::map<std::string, Bytes, std::less<>> terms_;
};

}  // namespace plimsoll
