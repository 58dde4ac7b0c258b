// Refuser: answers 503 to whoever connects to a port that stays open while nothing is served there.
//
// A socket unit's port does, and its clients would wait for ever; and where the service has failed,
// the manager would start it again for as long as one of them waits.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "shared/base/clock.h"
#include "shared/base/unique_fd.h"

namespace plimsoll {

class Refuser {
 public:
  static constexpr std::size_t kOpenMax = 256;
  // For a client to read its answer and to close.
  static constexpr Duration kReadTime = seconds(2);
  static constexpr Duration kPause = milliseconds(200);  // without descriptors

  // Answers all that wait at that socket, as far as there is room. REQUIRES: it does not block.
  void serve(int listener, const std::string& reason, TimePoint now);
  // Takes what clients still send, and lets go of those that have closed or had their time.
  void look(TimePoint now);
  // Both, until nobody is left or the time is over.
  void finish(int listener, const std::string& reason, Duration longest);

  // Nor without descriptors, which others may give back.
  bool has_room() const { return clients_.size() < kOpenMax && !again_at_; }
  std::size_t open() const { return clients_.size(); }
  std::vector<int> descriptors() const;
  // When look() has something to do, whatever clients do.
  std::optional<TimePoint> next_deadline() const;

 private:
  struct Client {
    UniqueFd fd;
    TimePoint until;
  };
  std::vector<Client> clients_;        // by time
  std::optional<TimePoint> again_at_;  // until then no more are taken
};

// A start that fails with that code is not tried again, and whoever waits is told so.
constexpr Duration kFarewellTime = milliseconds(500);
bool is_final(int exit_code);

// The whole answer: an error as the API has it, with Retry-After.
std::string refusal_text(const std::string& reason);

}  // namespace plimsoll
