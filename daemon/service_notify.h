// ServiceNotify: words to systemd (sd_notify): ready, status, stopping, watchdog. Without a service
// manager every call does nothing.
#pragma once

#include <optional>

#include "daemon/events.h"
#include "shared/base/clock.h"

namespace plimsoll {

// "READY=1\nSTATUS=...": a Notify in the protocol's words.
std::string notify_text(const Notify& notify);

class ServiceNotify {
 public:
  ServiceNotify();
  void send(const Notify& notify);
  // Gives a descriptor into the manager's store, from where it comes back to the next life of this
  // service (LISTEN_FDS), or takes it out. Whether there is a manager to give it to.
  bool store(const char* name, int fd);
  void forget(const char* name);
  // Once in each turn of the decision loop: that the daemon can act is what the watchdog watches.
  void alive(TimePoint now);
  // When `alive` is due again; nothing without a watchdog.
  std::optional<TimePoint> next_deadline() const;

 private:
  Duration interval_{0};  // half of what systemd allows; zero: no watchdog
  TimePoint due_;
};

}  // namespace plimsoll
