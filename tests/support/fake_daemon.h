// FakeDaemon: answers the CLI's commands on a control socket as a test says; runs in a thread.
#pragma once

#include <filesystem>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "shared/control/channel.h"

namespace plimsoll {

class FakeDaemon {
 public:
  using Answer = std::function<Reply(const Command&)>;  // called in the daemon's thread

  FakeDaemon(const std::filesystem::path& runtime, Answer answer);
  ~FakeDaemon();
  FakeDaemon(const FakeDaemon&) = delete;
  FakeDaemon& operator=(const FakeDaemon&) = delete;

  // So far, without `status`, which is asked any number of times.
  std::vector<Command> commands();

 private:
  void serve(std::stop_token stop, Channel channel, const Answer& answer);

  std::mutex mutex_;
  std::vector<Command> commands_;
  std::jthread thread_;
};

}  // namespace plimsoll
