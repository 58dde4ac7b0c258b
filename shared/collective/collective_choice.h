// CollectiveChoice: which backends of the collective ranks of a machine can have, and what the
// options say of them. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "shared/machine/machine.h"
#include "shared/options/option_set.h"

namespace plimsoll {

enum class CollectiveKind { shm, ipc, fused, nccl, nccl_symmetric };
constexpr std::array<CollectiveKind, 5> kCollectiveKinds = {
    CollectiveKind::shm, CollectiveKind::ipc, CollectiveKind::fused, CollectiveKind::nccl,
    CollectiveKind::nccl_symmetric};
const char* collective_name(CollectiveKind kind);   // as --collective has it
const char* collective_about(CollectiveKind kind);  // a few words for people

struct CollectiveOffer {
  CollectiveKind kind = CollectiveKind::shm;
  bool is_there = true;
  std::string why_not = {};  // "the driver allows no peer access between these GPUs"
};

// All of them, in the order of kCollectiveKinds. `tp` ranks exchange.
std::vector<CollectiveOffer> collective_offers(const Machine& machine, const Options& options,
                                               std::int64_t tp);

// Errors: Code::invalid, in one line: the backend that is asked for is not there, or the two
// options contradict each other.
Status check_collective(const Machine& machine, const OptionSet& options, std::int64_t tp);

// What this build's workers have no code for, on the devices that they are to run on. Errors: as
// above; for simulated devices none, since a rehearsal exchanges nothing over links.
Status check_collective_code(const Machine& machine, const OptionSet& options, std::int64_t tp);

// Of ranks on GPUs: "auto: fused, by a test at start", "nccl (--collective)".
std::string collective_choice_text(const OptionSet& options);

}  // namespace plimsoll
