// RouterHarness: the real router in a thread of the test, with a daemon and leaders that the test
// plays.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "router/router.h"
#include "shared/options/option_set.h"
#include "tests/router/tiny_context.h"
#include "tests/support/fake_leader.h"
#include "tests/support/raw_http.h"

namespace plimsoll {

class RouterHarness {
 public:
  explicit RouterHarness(Options options = {}, HttpLimits limits = {},
                         const std::string& first_state = "loading")
      : folder_("router_" + std::to_string(::getpid())),
        pair_(std::move(*descriptor_pair())),
        daemon_(std::move(*Channel::bind(endpoint("control"), 0600))) {
    RouterArguments arguments;
    arguments.control_endpoint = endpoint("control");
    arguments.instance = "test";
    arguments.parent_fd = pair_.child.get();
    arguments.ends_on_sigterm = false;
    arguments.http = limits;
    thread_ = std::thread([this, arguments] { code_ = run_router(arguments); });
    start(std::move(options), first_state);
  }
  RouterHarness(const RouterHarness&) = delete;
  RouterHarness& operator=(const RouterHarness&) = delete;
  ~RouterHarness() { stop(); }

  std::string endpoint(const std::string& name) const {
    return "ipc://" + (folder_.path() / name).string();
  }
  std::uint16_t port() const { return port_; }
  const std::string& url() const { return url_; }

  void tell(const Message& message) {
    const Status sent = daemon_.send(router_, message);
    EXPECT_TRUE(sent) << sent.error().message;
  }
  void replicas(std::vector<ReplicaInfo> infos, std::string state = "serving") {
    tell(Replicas{std::move(state), "", std::move(infos)});
  }
  // The daemon's next message of that type; others are dropped. Waits at most 10 s.
  template <typename T>
  T hear() {
    const TimePoint deadline = now() + seconds(10);
    while (now() < deadline) {
      auto received = daemon_.receive(deadline - now());
      if (!received) continue;
      router_ = received->peer;
      if (auto* message = std::get_if<T>(&received->message)) return std::move(*message);
    }
    ADD_FAILURE() << "the router did not say what it should";
    return {};
  }
  // One leader that is ready. The table is known to have arrived once /health says so.
  FakeLeader& ready_leader() {
    leaders_.push_back(std::make_unique<FakeLeader>(endpoint("leader0")));
    replicas({{0, "ready", leaders_.back()->endpoint(), 1}});
    wait_for_health(200);
    return *leaders_.back();
  }
  void wait_for_health(int status) {
    const TimePoint deadline = now() + seconds(10);
    int got = 0;
    while (got != status && now() < deadline) {
      RawHttp client(port_);
      client.get("/health");
      got = client.answer().status;
    }
    EXPECT_EQ(got, status);
  }
  // Asks /metrics until it has that line.
  void wait_for_metric(std::string_view line) {
    const TimePoint deadline = now() + seconds(10);
    bool found = false;
    RawHttp client(port_);
    while (!found && now() < deadline) {
      client.get("/metrics");
      found = client.answer().body.find(line) != std::string::npos;
    }
    EXPECT_TRUE(found) << line;
  }
  void wait_for_waiting(int count) {
    wait_for_metric("plimsoll_requests_waiting{model_name=\"ship\"} " + std::to_string(count) +
                    "\n");
  }
  // The exit code once the router ended by itself.
  int wait_for_exit() {
    thread_.join();
    return code_ && *code_ ? **code_ : -1;
  }
  // Closes the daemon's end of the socket pair.
  void stop() {
    pair_.parent.reset();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void start(Options options, const std::string& first_state) {
    const Hello hello = hear<Hello>();
    EXPECT_EQ(hello.role, "router");
    EXPECT_EQ(hello.instance, "test");
    options.log_level = "error";
    tell(RouterSetup{option_set_to_json({options, {}}), write_router_model(folder_).string(),
                     "ship", 64});
    LoopbackListener listener = listen_on_loopback();
    port_ = listener.port;
    const Status sent = send_descriptor(pair_.parent.get(), "listener", listener.socket.get());
    EXPECT_TRUE(sent) << sent.error().message;
    url_ = hear<Listening>().url;
    replicas({}, first_state);  // connections are accepted from here on
  }

  FakeRoot folder_;
  SocketPair pair_;
  Channel daemon_;
  std::string router_;
  std::string url_;
  std::uint16_t port_ = 0;
  std::vector<std::unique_ptr<FakeLeader>> leaders_;
  std::optional<Result<int>> code_;
  std::thread thread_;
};

}  // namespace plimsoll
