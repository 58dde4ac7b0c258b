#include "tests/support/fake_leader.h"

#include <utility>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

namespace plimsoll {
namespace {

constexpr Duration kWaitMax = seconds(10);

}  // namespace

FakeLeader::FakeLeader(std::string endpoint) : endpoint_(std::move(endpoint)) {
  auto channel = Channel::bind(endpoint_, 0600);
  EXPECT_TRUE(channel) << channel.error().message;
  if (channel) channel_ = std::move(*channel);
}

bool FakeLeader::receive_one(Duration timeout) {
  auto received = channel_->receive(timeout);
  if (!received) return false;
  router_ = received->peer;
  if (auto* generate = std::get_if<Generate>(&received->message)) {
    generates_.push_back(std::move(*generate));
  } else if (const auto* cancel = std::get_if<Cancel>(&received->message)) {
    cancels_.push_back(cancel->id);
  } else {
    ADD_FAILURE() << "a leader was sent message type " << received->message.index();
  }
  return true;
}

Generate FakeLeader::next_generate() {
  const TimePoint deadline = now() + kWaitMax;
  while (generates_.empty() && now() < deadline) receive_one(deadline - now());
  EXPECT_FALSE(generates_.empty()) << "no Generate came to " << endpoint_;
  if (generates_.empty()) return {};
  Generate generate = std::move(generates_.front());
  generates_.pop_front();
  return generate;
}

std::uint64_t FakeLeader::next_cancel() {
  const TimePoint deadline = now() + kWaitMax;
  while (cancels_.empty() && now() < deadline) receive_one(deadline - now());
  EXPECT_FALSE(cancels_.empty()) << "no Cancel came to " << endpoint_;
  if (cancels_.empty()) return 0;
  const std::uint64_t id = cancels_.front();
  cancels_.pop_front();
  return id;
}

bool FakeLeader::nothing_came() {
  while (receive_one(Duration(0))) {
  }
  return generates_.empty() && cancels_.empty();
}

// The router is a thread of this process, and so is each end of the connection a descriptor of it.
bool FakeLeader::break_connection() const { return break_connections(endpoint_); }

bool break_connections(const std::string& endpoint) {
  constexpr int kDescriptorsMax = 1024;
  const std::string path = endpoint.substr(std::string_view("ipc://").size());
  bool is_broken = false;
  for (int fd = 3; fd < kDescriptorsMax; ++fd) {
    sockaddr_un address{};
    socklen_t length = sizeof address;
    int listens = 0;
    socklen_t size = sizeof listens;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    const bool is_ours = ::getsockname(fd, generic, &length) == 0 &&
                         address.sun_family == AF_UNIX && path == address.sun_path &&
                         ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 &&
                         listens == 0;
    if (is_ours && ::shutdown(fd, SHUT_RDWR) == 0) is_broken = true;
  }
  return is_broken;
}

void FakeLeader::answer(TokenEvent event) {
  StepTokens step;
  step.events.push_back(std::move(event));
  const Status sent = channel_->send(router_, step);
  EXPECT_TRUE(sent) << sent.error().message;
}

void FakeLeader::tokens(std::uint64_t id, std::vector<std::int64_t> tokens, std::string finish) {
  TokenEvent event;
  event.id = id;
  event.tokens = std::move(tokens);
  event.finish = std::move(finish);
  answer(std::move(event));
}

void FakeLeader::error(std::uint64_t id, std::string code, std::string message) {
  TokenEvent event;
  event.id = id;
  event.finish = "error";
  event.error_code = std::move(code);
  event.error = std::move(message);
  answer(std::move(event));
}

}  // namespace plimsoll
