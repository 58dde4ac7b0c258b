#include "daemon/surveyor.h"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <iterator>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace plimsoll {
namespace {

constexpr Duration kEndTime = seconds(1);

}  // namespace

struct Surveyor::Inquiry {
  Question question;
  TimePoint until;
  UniqueFd news;
  std::mutex mutex;
  std::condition_variable changed;
  // Under the mutex:
  std::optional<Event> answer;
  bool is_left = false;  // to its thread, with all that it uses
  std::thread thread;    // of the owner's alone
};

Surveyor::Surveyor(Duration longest) : longest_(longest) {}

// It is stuck: whenever it comes back, nobody waits for its answer.
void Surveyor::let_go(std::unique_ptr<Inquiry> inquiry, std::unique_lock<std::mutex> lock) {
  inquiry->thread.detach();
  inquiry->is_left = true;
  (void)inquiry.release();
  lock.unlock();
}

Surveyor::~Surveyor() {
  const TimePoint end = now() + kEndTime;
  for (std::unique_ptr<Inquiry>& one : inquiries_) {
    std::unique_lock lock(one->mutex);
    const bool has_ended =
        one->changed.wait_until(lock, end, [&one] { return one->answer.has_value(); });
    if (!has_ended) {
      let_go(std::move(one), std::move(lock));
      continue;
    }
    lock.unlock();
    one->thread.join();
  }
}

void Surveyor::forget_returned() {
  std::erase_if(stuck_, [](const UniqueFd& news) {
    pollfd one{.fd = news.get(), .events = POLLIN, .revents = 0};
    return ::poll(&one, 1, 0) == 1 && (one.revents & POLLIN) != 0;
  });
}

void Surveyor::ask(Question question, TimePoint now) {
  forget_returned();
  if (std::ssize(stuck_) >= kStuckMax) {
    answers_.push_back(std::move(question.late));
    return;
  }
  auto inquiry = std::make_unique<Inquiry>();
  inquiry->question = std::move(question);
  inquiry->until = now + longest_;
  inquiry->news.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  Inquiry& one = *inquiry;
  const auto find = [&one] {
    Event answer = one.question.late;
    try {
      answer = one.question.find();
    } catch (const std::exception&) {
      // As a library does in the midst of a folder of a file server that has gone.
    }
    std::unique_ptr<Inquiry> own;  // goes after the lock
    const std::lock_guard lock(one.mutex);
    const std::uint64_t count = 1;
    (void)!::write(one.news.get(), &count, sizeof count);
    if (one.is_left) {
      own.reset(&one);
      return;
    }
    one.answer = std::move(answer);
    one.changed.notify_all();
  };
  bool has_thread = static_cast<bool>(one.news);
  try {
    if (has_thread) one.thread = std::thread(find);
  } catch (const std::system_error&) {
    has_thread = false;
  }
  if (has_thread) {
    inquiries_.push_back(std::move(inquiry));
  } else {
    // Without descriptors or threads to spare it is asked here and now.
    answers_.push_back(one.question.find());
  }
}

std::vector<Event> Surveyor::take(TimePoint now) {
  std::vector<Event> taken = std::exchange(answers_, {});
  for (std::unique_ptr<Inquiry>& one : inquiries_) {
    std::unique_lock lock(one->mutex);
    if (one->answer) {
      taken.push_back(std::move(*one->answer));
      lock.unlock();
      one->thread.join();
      one.reset();
    } else if (now >= one->until) {
      // Not `late` itself: nobody else may touch what its thread may still read.
      taken.push_back(one->question.late);
      // Without a descriptor to spare it is never seen to come back.
      stuck_.emplace_back(::fcntl(one->news.get(), F_DUPFD_CLOEXEC, 0));
      let_go(std::move(one), std::move(lock));
    }
  }
  std::erase(inquiries_, nullptr);
  return taken;
}

std::vector<int> Surveyor::descriptors() const {
  std::vector<int> all;
  all.reserve(inquiries_.size());
  for (const std::unique_ptr<Inquiry>& one : inquiries_) all.push_back(one->news.get());
  return all;
}

std::optional<TimePoint> Surveyor::next_deadline() const {
  if (!answers_.empty()) return TimePoint();
  if (inquiries_.empty()) return std::nullopt;
  return inquiries_.front()->until;
}

}  // namespace plimsoll
