#include "worker/crash_handler.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <optional>

#include <unistd.h>

#include "shared/base/check.h"
#include "shared/base/crash_mark.h"

namespace plimsoll {
namespace {

constexpr std::array kSignals = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
constexpr std::size_t kStackBytes = 64 * 1024;

struct Place {
  std::optional<ReplicaSegment> segment;
  int rank = 0;
  std::atomic<bool> is_entered = false;
  alignas(16) std::array<std::byte, kStackBytes> stack;  // a crash may be one of the stack
};
// A signal handler has no argument of its own: the one global of this program.
Place place;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

// A signal of the kernel's own has an address; the others have a sender in its place.
std::uint64_t address_of(const siginfo_t& info) {
  if (info.si_code > 0) return reinterpret_cast<std::uint64_t>(info.si_addr);
  return info.si_pid == ::getpid() ? kCrashRaised : kCrashSent;
}

// Only plain system calls and atomics from here on: any lock may be held for ever.
extern "C" void on_crash(int number, siginfo_t* info, void*) {
  if (place.is_entered.exchange(true)) {
    for (;;) ::pause();  // another thread of this process is at it, and ends it
  }
  if (place.segment) {
    RankLine& line = place.segment->line(place.rank);
    line.crash_address.store(address_of(*info));
    line.crash_signal.store(number);
    std::array<char, 64> reason{"a crash of rank "};
    char* end = reason.data() + std::strlen(reason.data());
    end = std::to_chars(end, reason.data() + reason.size(), place.rank).ptr;
    place.segment->abort({reason.data(), static_cast<std::size_t>(end - reason.data())});
  }
  std::signal(number, SIG_DFL);
  sigset_t this_one;
  ::sigemptyset(&this_one);
  ::sigaddset(&this_one, number);
  ::pthread_sigmask(SIG_UNBLOCK, &this_one, nullptr);
  (void)::raise(number);
}

}  // namespace

Result<CrashHandler> CrashHandler::install(ReplicaSegment segment, int rank) {
  CHECK(!place.segment);
  place.segment = segment;
  place.rank = rank;
  stack_t stack{};
  stack.ss_sp = place.stack.data();
  stack.ss_size = place.stack.size();
  CrashHandler handler;
  if (::sigaltstack(&stack, nullptr) != 0) {
    return internal_error(std::string("set a stack for crashes: ") + std::strerror(errno));
  }
  struct sigaction action {};
  action.sa_sigaction = on_crash;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigemptyset(&action.sa_mask);
  for (const int number : kSignals) {
    if (::sigaction(number, &action, nullptr) == 0) continue;
    return internal_error(std::string("handle a crash signal: ") + std::strerror(errno));
  }
  return handler;
}

CrashHandler::~CrashHandler() {
  if (!is_installed_) return;
  for (const int number : kSignals) std::signal(number, SIG_DFL);
  stack_t none{};
  none.ss_flags = SS_DISABLE;
  (void)::sigaltstack(&none, nullptr);
  place.segment.reset();
  place.is_entered = false;
}

}  // namespace plimsoll
