#include "daemon/root_cause.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <tuple>

#include <fmt/format.h>

#include "shared/base/check.h"
#include "shared/base/crash_mark.h"

namespace plimsoll {
namespace {

// What its crash handler wrote counts even where we killed it before the kernel was done with it.
bool has_crashed(const LastWords& words) {
  return words.ending && words.ending->mark.crash_signal != 0;
}

Ending ending_of(const LastWords& words) {
  if (!has_crashed(words)) return *words.ending;
  return {.by_signal = true, .code = words.ending->mark.crash_signal, .mark = words.ending->mark};
}

// How much an end looks like a cause and not like a consequence; less is more.
enum class Weight { device, verdict, own, exit, peer_fault, quiet_exit, killed };

Weight weigh(const LastWords& words) {
  if (words.verdict) return words.has_lost_device ? Weight::device : Weight::verdict;
  // Collectives end with `unavailable` when a peer has gone: mostly an echo.
  if (words.fault) {
    const Code code = words.fault->code;
    const bool is_echo = code == Code::unavailable || code == Code::timed_out;
    return is_echo ? Weight::peer_fault : Weight::own;
  }
  if (has_crashed(words)) return Weight::own;
  if (words.was_killed || !words.ending) return Weight::killed;
  if (words.ending->by_signal) return Weight::own;
  return words.ending->code != 0 || words.was_first ? Weight::exit : Weight::quiet_exit;
}

// Where it was, after what happened: ", in step 17 (decode)".
std::string where(const LastWords& words) {
  if (!words.ending) return "";
  const RankMark& mark = words.ending->mark;
  std::string text;
  if (mark.crash_signal != 0 && mark.crash_address == kCrashSent) {
    text = " (sent by another process)";
  } else if (mark.crash_address != kCrashRaised &&
             (mark.crash_signal == SIGSEGV || mark.crash_signal == SIGBUS)) {
    text = fmt::format(" at address {:#x}", mark.crash_address);
  }
  const std::string place = describe_mark(mark);
  return place.empty() ? text : text + ", " + place;
}

bool is_own_fault(const LastWords& words) {
  if (words.verdict) return false;
  if (words.fault) return words.fault->code == Code::internal;
  if (has_crashed(words)) return words.ending->mark.crash_address != kCrashSent;
  if (!words.ending || !words.ending->by_signal || words.was_killed) return false;
  const int number = words.ending->code;
  return number == SIGSEGV || number == SIGBUS || number == SIGABRT || number == SIGFPE ||
         number == SIGILL;
}

std::string words_of(const LastWords& words) {
  if (words.verdict) return words.verdict->message + where(words);
  if (words.fault) return "failed: " + words.fault->message;
  if (!words.ending) return "was ended with its replica";
  if (!words.ending->by_signal && words.ending->code == 0) {
    return "left without being asked" + where(words);
  }
  std::string text = describe_ending(ending_of(words)) + where(words);
  const bool is_from_outside =
      words.ending->by_signal && words.ending->code == SIGKILL && !words.was_killed;
  if (!is_from_outside || words.ending->by_oom == true) return text;
  return text + (words.ending->by_oom == false
                     ? " (not by plimsolld, nor by the kernel for want of memory)"
                     : " (not by plimsolld: by a user, or by the kernel when memory ran out)");
}

Code code_of(const LastWords& words) {
  if (words.verdict) return words.verdict->code;
  if (words.fault) return words.fault->code;
  return words.ending ? ending_code(*words.ending) : Code::unavailable;
}

}  // namespace

RootCause find_root_cause(std::span<const LastWords> ranks) {
  CHECK(!ranks.empty());
  const auto order = [](const LastWords& words) {
    return std::make_tuple(weigh(words), words.first_sign, words.rank);
  };
  const auto first =
      std::min_element(ranks.begin(), ranks.end(),
                       [&](const LastWords& a, const LastWords& b) { return order(a) < order(b); });
  RootCause cause{.rank = first->rank,
                  .code = code_of(*first),
                  .is_own_fault = is_own_fault(*first),
                  .is_device = first->has_lost_device,
                  .message = {}};
  cause.message =
      fmt::format("rank {}{} {}", first->rank,
                  first->pid > 0 ? fmt::format(" (pid {})", first->pid) : "", words_of(*first));
  const std::size_t peers = ranks.size() - 1;
  if (peers > 0) {
    cause.message += fmt::format("; {} {} left with it", peers, peers == 1 ? "peer" : "peers");
  }
  return cause;
}

bool may_still_speak(const LastWords& words) {
  return words.ending && !words.ending->by_signal && words.ending->code != 0 && !words.fault &&
         !words.verdict;
}

std::string describe_ending(const Ending& ending) {
  if (!ending.by_signal) return fmt::format("exited with code {}", ending.code);
  const char* name = ::sigabbrev_np(ending.code);
  if (name == nullptr) return fmt::format("was killed by signal {}", ending.code);
  const bool by_oom = ending.code == SIGKILL && ending.by_oom == true;
  return fmt::format("was killed by SIG{}{}", name,
                     by_oom ? " (OOM: the kernel has ended it, since memory ran out)" : "");
}

Code ending_code(const Ending& ending) {
  if (ending.by_signal) return Code::unavailable;
  switch (ending.code) {
    case 78:
      return Code::invalid;
    case 3:
      return Code::does_not_fit;
    case 75:
      return Code::unavailable;
    default:
      return Code::internal;
  }
}

Code code_from_name(const std::string& name) {
  for (const Code code : {Code::invalid, Code::not_found, Code::does_not_fit, Code::unavailable,
                          Code::timed_out, Code::corrupt, Code::internal}) {
    if (name == code_name(code)) return code;
  }
  return Code::internal;
}

Error probe_error(const std::string& code, std::string message) {
  return code_from_name(code) == Code::corrupt ? corrupt(std::move(message))
                                               : unavailable(std::move(message));
}

}  // namespace plimsoll
