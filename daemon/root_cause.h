// RootCause: the last words of all ranks of a dead replica, made into the one that was the cause.
//
// When one rank dies its peers leave too, by an aborted collective or by our hand. Users need the
// first domino, once, and the number of the others.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "daemon/events.h"
#include "shared/base/clock.h"
#include "shared/base/result.h"

namespace plimsoll {

// What is known of one rank's end.
struct LastWords {
  std::int64_t rank = 0;
  std::int64_t pid = 0;
  std::optional<Error> fault;    // that it reported itself
  std::optional<Error> verdict;  // why the supervisor ended it: hung, stalled, could not start
  std::optional<Ending> ending;
  bool has_lost_device = false;  // says the verdict
  bool was_killed = false;       // by us, as a consequence
  bool was_first = false;        // nothing was known of its peers' ends when it died
  TimePoint first_sign;
};

struct RootCause {
  std::int64_t rank = 0;
  Code code = Code::internal;
  // A crash, a failed check or a broken device of the rank itself: what it was working on may be
  // the reason. Never a kill from outside, an exit by its own will or a hang.
  bool is_own_fault = false;
  bool is_device = false;  // what it ran on has failed
  std::string message;     // "rank 1 (pid 4711) was killed by SIGKILL ...; 3 peers left"
};

RootCause find_root_cause(std::span<const LastWords> ranks);

// Its process is gone, but the Fault that it sent before may still be on its way through ZeroMQ.
bool may_still_speak(const LastWords& words);
constexpr Duration kLastWordsTime = milliseconds(50);

// "exited with code 78", "was killed by SIGSEGV".
std::string describe_ending(const Ending& ending);
Code ending_code(const Ending& ending);
// The code of that name, or internal.
Code code_from_name(const std::string& name);
// Of a test request that failed: damaged weights stay damaged, everything else may pass.
Error probe_error(const std::string& code, std::string message);

}  // namespace plimsoll
