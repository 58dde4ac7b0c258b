// Tunable: a collective that has several algorithms for the same sums, all with the same bits, and
// takes one by the size of a message.
#pragma once

#include <span>
#include <string_view>

#include "shared/collective/backend_table.h"

namespace plimsoll {

class Tunable {
 public:
  virtual ~Tunable() = default;

  virtual std::string_view backend() const = 0;  // "shm"
  // The first is what is used until a table says otherwise.
  virtual std::span<const std::string_view> algorithms() const = 0;
  // From the next call on; on every rank before the same call. REQUIRES: its algorithms are ours.
  virtual void use(const BackendTable& table) = 0;
};

}  // namespace plimsoll
