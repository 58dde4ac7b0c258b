#include "tests/support/fake_daemon.h"

#include <optional>
#include <utility>

#include "shared/base/check.h"
#include "shared/base/clock.h"
#include "shared/control/endpoints.h"

namespace plimsoll {

FakeDaemon::FakeDaemon(const std::filesystem::path& runtime, Answer answer) {
  std::filesystem::create_directories(runtime);
  Result<Channel> channel = Channel::bind(control_endpoint(runtime), 0600);
  CHECK(channel);
  thread_ = std::jthread([this, bound = std::move(*channel),
                          answer = std::move(answer)](std::stop_token stop) mutable {
    serve(std::move(stop), std::move(bound), answer);
  });
}

FakeDaemon::~FakeDaemon() = default;  // the thread is asked to stop, and joined

std::vector<Command> FakeDaemon::commands() {
  const std::lock_guard lock(mutex_);
  return commands_;
}

void FakeDaemon::serve(std::stop_token stop, Channel channel, const Answer& answer) {
  while (!stop.stop_requested()) {
    const std::optional<Received> received = channel.receive(milliseconds(5));
    if (!received) continue;
    const auto* command = std::get_if<Command>(&received->message);
    if (command == nullptr) continue;
    if (command->verb != "status") {
      const std::lock_guard lock(mutex_);
      commands_.push_back(*command);
    }
    CHECK(channel.send(received->peer, answer(*command)));
  }
}

}  // namespace plimsoll
