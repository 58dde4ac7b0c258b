// Surveyor: asks the machine what may take long, each question in a thread of its own, and gives up
// on what takes too long: a driver whose device is broken, or a file server that hangs, must not
// hold up who looks after processes.
//
// One thread owns it.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "daemon/events.h"
#include "shared/base/clock.h"
#include "shared/base/unique_fd.h"

namespace plimsoll {

class Surveyor {
 public:
  static constexpr Duration kLongest = seconds(60);
  // Threads that have not come back; with so many there are no more questions.
  static constexpr int kStuckMax = 8;

  explicit Surveyor(Duration longest = kLongest);
  Surveyor(const Surveyor&) = delete;
  Surveyor& operator=(const Surveyor&) = delete;
  ~Surveyor();  // waits a second for what is asked, and no longer

  // `find` runs in another thread, and may outlive this object: it owns what it uses. `late` is the
  // answer where there is none in time, or none at all.
  struct Question {
    std::function<Event()> find;
    Event late;
  };
  void ask(Question question, TimePoint now);
  // Answers so far, in the order of their questions as far as they are there.
  std::vector<Event> take(TimePoint now);
  // Readable when there is an answer.
  std::vector<int> descriptors() const;
  std::optional<TimePoint> next_deadline() const;

 private:
  struct Inquiry;
  void forget_returned();
  static void let_go(std::unique_ptr<Inquiry> inquiry, std::unique_lock<std::mutex> lock);

  Duration longest_;
  std::vector<std::unique_ptr<Inquiry>> inquiries_;
  std::vector<Event> answers_;   // that needed no thread, or got none
  std::vector<UniqueFd> stuck_;  // readable: that thread has come back
};

}  // namespace plimsoll
