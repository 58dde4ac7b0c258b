// Arena: the memory of a rank, taken once from the system and carved into the plan's regions.
//
// Weights, tables, activations, workspace and logits of the plan are one anonymous map (the weights
// only where they do not lie in memory that outlives the rank), or on a device an allocation each;
// KV comes later, once the daemon has fixed the number of blocks. What a region does not have is
// a fault of the plan or of the code that estimates, and says which row it belongs to. Pages of a
// map come zeroed and only when touched; they are left out of core dumps. Memory is never given
// back.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "shared/base/result.h"
#include "shared/base/units.h"
#include "shared/memory/memory_plan.h"

namespace plimsoll {

// An anonymous private map; unmapped at destruction.
class MappedMemory {
 public:
  struct Options {
    Bytes bytes = 0;
    bool huge_pages = false;  // ask for 2 MiB pages; aligned to them
    std::string purpose;      // for error messages: "the KV cache"
  };
  static Result<MappedMemory> create(const Options& options);
  MappedMemory() = default;
  MappedMemory(MappedMemory&& other) noexcept;
  MappedMemory& operator=(MappedMemory&& other) noexcept;
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;
  ~MappedMemory();

  // Has the kernel give all pages now. Errors: does_not_fit where it has not that many.
  Status populate(const std::string& purpose) const;

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> map_;    // as the kernel gave it
  std::span<std::byte> bytes_;  // the aligned part that was asked for
};

// The rows of a plan that lie in the arena.
inline constexpr std::array kArenaTerms = {Term::weights, Term::tables, Term::activations,
                                           Term::workspace, Term::logits};

class Arena {
 public:
  // Maps the rows of the plan that tensors come from. `weights`: theirs, where it is there already.
  static Result<Arena> create(const RankPlan& plan, std::span<std::byte> weights = {});
  // The same on a device.
  static Result<Arena> create(const RankPlan& plan, DeviceMemory& device);
  // Of all rows but KV, without any memory: for devices that are not there. Only account() works.
  static Arena without_memory(const RankPlan& plan);

  // Zeroed memory from the term's region, 64-byte aligned. Errors: Code::internal where the
  // plan's row is too short for it; names the row, what it is for, and both numbers.
  Result<std::span<std::byte>> take(Term term, Bytes bytes, const std::string& purpose);
  // The same without giving memory.
  Status account(Term term, Bytes bytes, const std::string& purpose);
  std::span<const std::byte> memory() const { return memory_.bytes(); }
  Bytes planned(Term term) const;
  Bytes taken(Term term) const;
  // What the device had less of, once the term's region was there: what was asked for, in the
  // device's pieces.
  Bytes held(Term term) const;

 private:
  struct Region {
    Term term = Term::weights;
    Bytes bytes = 0;
    std::span<std::byte> memory;  // of that length, or empty
    Bytes taken = 0;
    Bytes held = 0;
  };
  const Region* find(Term term) const;
  // Where in the region the next `bytes` begin; they are taken.
  Result<Bytes> reserve(Term term, Bytes bytes, const std::string& purpose);

  MappedMemory memory_;
  std::vector<Region> regions_;
};

}  // namespace plimsoll
