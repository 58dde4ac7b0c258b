#include "worker/arena.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>

#include "shared/base/check.h"

namespace plimsoll {
namespace {

constexpr Bytes kHugePage = 2 * kMiB;
constexpr Bytes kRegionAlignment = 4 * kKiB;
constexpr Bytes kTakeAlignment = 64;

std::size_t size(Bytes bytes) { return static_cast<std::size_t>(bytes); }

}  // namespace

Result<MappedMemory> MappedMemory::create(const Options& options) {
  CHECK(options.bytes >= 0);
  MappedMemory result;
  if (options.bytes == 0) return result;
  // The kernel aligns to small pages only: ask for more and use the aligned part of it.
  const Bytes length = options.bytes + (options.huge_pages ? kHugePage : 0);
  void* address = ::mmap(nullptr, size(length), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    const int error = errno;
    return Error{Code::does_not_fit,
                 fmt::format("map {} for {}: {}; lower --device-memory or raise the limit on "
                             "address space (ulimit -v)",
                             format_bytes(options.bytes), options.purpose, std::strerror(error))};
  }
  result.map_ = {static_cast<std::byte*>(address), size(length)};
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t aligned =
      options.huge_pages
          ? static_cast<std::uintptr_t>(round_up(static_cast<Bytes>(start), kHugePage))
          : start;
  result.bytes_ = result.map_.subspan(aligned - start, size(options.bytes));
  // Both are advice: without them the memory works all the same.
  if (options.huge_pages) (void)::madvise(result.bytes_.data(), size(options.bytes), MADV_HUGEPAGE);
  (void)::madvise(address, size(length), MADV_DONTDUMP);
  return result;
}

MappedMemory::MappedMemory(MappedMemory&& other) noexcept
    : map_(std::exchange(other.map_, {})), bytes_(std::exchange(other.bytes_, {})) {}

MappedMemory& MappedMemory::operator=(MappedMemory&& other) noexcept {
  std::swap(map_, other.map_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedMemory::~MappedMemory() {
  if (!map_.empty()) ::munmap(map_.data(), map_.size());
}

Status MappedMemory::populate(const std::string& purpose) const {
  if (bytes_.empty()) return {};
  if (::madvise(bytes_.data(), bytes_.size(), MADV_POPULATE_WRITE) == 0) return {};
  const int error = errno;
  if (error == EINVAL) {  // a kernel before 5.14: the same, page by page
    for (std::size_t at = 0; at < bytes_.size(); at += size(kRegionAlignment)) {
      *const_cast<volatile std::byte*>(bytes_.data() + at) = std::byte{0};
    }
    return {};
  }
  return Error{Code::does_not_fit,
               fmt::format("touch {} of {}: {}; there is less memory than "
                           "was planned with",
                           format_bytes(std::ssize(bytes_)), purpose, std::strerror(error))};
}

Result<Arena> Arena::create(const RankPlan& plan, std::span<std::byte> weights) {
  Arena arena;
  Bytes total = 0;
  const auto is_there = [&](Term term) { return term == Term::weights && !weights.empty(); };
  const auto size_of = [&](Term term) {
    return term == Term::weights ? plan.packed_weights() : plan.bytes(term);
  };
  for (const Term term : kArenaTerms) {
    if (!is_there(term)) total += round_up(size_of(term), kRegionAlignment);
  }
  arena.memory_ = TRY(MappedMemory::create(
      {.bytes = total, .huge_pages = true, .purpose = "the weights and buffers of the plan"}));
  std::span<std::byte> rest = arena.memory_.bytes();
  for (const Term term : kArenaTerms) {
    const Bytes bytes = size_of(term);
    if (is_there(term)) {
      CHECK(std::ssize(weights) == bytes);
      arena.regions_.push_back({term, bytes, weights, 0, 0});
      continue;
    }
    arena.regions_.push_back({term, bytes, rest.first(size(bytes)), 0, 0});
    rest = rest.subspan(size(round_up(bytes, kRegionAlignment)));
  }
  return arena;
}

Result<Arena> Arena::create(const RankPlan& plan, DeviceMemory& device) {
  Arena arena;
  Bytes free = TRY(device.state()).free;
  for (const Term term : kArenaTerms) {
    const Bytes bytes = plan.bytes(term);
    const std::span<std::byte> memory =
        TRY(device.allocate(bytes, fmt::format("the plan's row \"{}\"", term_name(term))));
    const Bytes before = std::exchange(free, TRY(device.state()).free);
    arena.regions_.push_back({term, bytes, memory, 0, std::max<Bytes>(0, before - free)});
  }
  return arena;
}

Arena Arena::without_memory(const RankPlan& plan) {
  Arena arena;
  for (const PlanRow& row : plan.rows) {
    if (row.term == Term::kv) continue;
    arena.regions_.push_back({row.term, row.bytes, {}, 0, 0});
  }
  return arena;
}

const Arena::Region* Arena::find(Term term) const {
  const auto found = std::ranges::find(regions_, term, &Region::term);
  return found == regions_.end() ? nullptr : &*found;
}

Result<Bytes> Arena::reserve(Term term, Bytes bytes, const std::string& purpose) {
  Region* region = const_cast<Region*>(find(term));
  CHECK(region != nullptr && bytes >= 0);
  const Bytes begin = round_up(region->taken, kTakeAlignment);
  if (begin + bytes > region->bytes) {
    return internal_error(fmt::format(
        "the plan's row \"{}\" has {} bytes, and {} of {} bytes needs {} of them; the plan "
        "estimates too little: please report this with the output of `plimsoll plan`",
        term_name(term), region->bytes, purpose, bytes, begin + bytes));
  }
  region->taken = begin + bytes;
  return begin;
}

Result<std::span<std::byte>> Arena::take(Term term, Bytes bytes, const std::string& purpose) {
  const Bytes begin = TRY(reserve(term, bytes, purpose));
  return find(term)->memory.subspan(size(begin), size(bytes));
}

Status Arena::account(Term term, Bytes bytes, const std::string& purpose) {
  TRY(reserve(term, bytes, purpose));
  return {};
}

Bytes Arena::planned(Term term) const {
  const Region* region = find(term);
  return region == nullptr ? 0 : region->bytes;
}

Bytes Arena::held(Term term) const {
  const Region* region = find(term);
  return region == nullptr ? 0 : region->held;
}

Bytes Arena::taken(Term term) const {
  const Region* region = find(term);
  return region == nullptr ? 0 : region->taken;
}

}  // namespace plimsoll
