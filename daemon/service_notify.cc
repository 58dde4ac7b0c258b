#include "daemon/service_notify.h"

#include <fmt/format.h>
#include <systemd/sd-daemon.h>

namespace plimsoll {

std::string notify_text(const Notify& notify) {
  std::string text;
  if (notify.is_ready) text += "READY=1\n";
  if (notify.is_stopping) text += "STOPPING=1\n";
  if (!notify.status.empty()) text += fmt::format("STATUS={}\n", notify.status);
  if (notify.extend > Duration(0)) {
    text +=
        fmt::format("EXTEND_TIMEOUT_USEC={}\n",
                    std::chrono::duration_cast<std::chrono::microseconds>(notify.extend).count());
  }
  return text;
}

ServiceNotify::ServiceNotify() {
  std::uint64_t microseconds = 0;
  if (::sd_watchdog_enabled(0, &microseconds) > 0) {
    interval_ = std::chrono::microseconds(microseconds / 2);
  }
}

void ServiceNotify::send(const Notify& notify) {
  // Nobody can be told when telling fails; the manager then acts on its own deadlines.
  (void)::sd_notify(0, notify_text(notify).c_str());
}

bool ServiceNotify::store(const char* name, int fd) {
  const std::string words = fmt::format("FDSTORE=1\nFDNAME={}", name);
  return ::sd_pid_notify_with_fds(0, 0, words.c_str(), &fd, 1) > 0;
}

void ServiceNotify::forget(const char* name) {
  (void)::sd_notify(0, fmt::format("FDSTOREREMOVE=1\nFDNAME={}", name).c_str());
}

void ServiceNotify::alive(TimePoint now) {
  if (interval_ == Duration(0) || now < due_) return;
  due_ = now + interval_;
  (void)::sd_notify(0, "WATCHDOG=1");
}

std::optional<TimePoint> ServiceNotify::next_deadline() const {
  if (interval_ == Duration(0)) return std::nullopt;
  return due_;
}

}  // namespace plimsoll
