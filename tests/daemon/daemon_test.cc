#include "daemon/daemon.h"

#include <fstream>
#include <thread>

#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/control/endpoints.h"
#include "tests/support/temp_folder.h"
#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

// A daemon in a thread of its own, which plays its main thread.
class DaemonTest : public ::testing::Test {
 protected:
  DaemonTest() {
    options_.values.runtime_dir = (folder_.path() / "run").string();
    options_.values.state_dir = (folder_.path() / "state").string();
    options_.values.port = 0;
    options_.values.log_level = "error";
  }
  ~DaemonTest() override {
    if (thread_.joinable()) thread_.join();
  }
  void program(const std::string& name, const std::string& script) {
    const std::filesystem::path path = folder_.path() / name;
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }
  void launch() {
    thread_ = std::thread([this] {
      Result<std::unique_ptr<Daemon>> daemon = Daemon::create(options_, folder_.path());
      ASSERT_TRUE(daemon) << daemon.error().message;
      exit_code_ = (*daemon)->run();
    });
  }
  Reply ask(const std::string& verb, Json arguments = Json::object()) {
    Channel channel = std::move(*Channel::connect(control_endpoint(options_.values.runtime_dir)));
    EXPECT_TRUE(channel.send(Command{verb, std::move(arguments)}));
    const std::optional<Received> received = channel.receive(seconds(30));
    EXPECT_TRUE(received) << verb;
    return received ? std::get<Reply>(received->message) : Reply{};
  }
  int wait_exit() {
    thread_.join();
    return exit_code_;
  }

  TempFolder folder_;
  OptionSet options_;
  std::thread thread_;
  int exit_code_ = -1;
};

TEST_F(DaemonTest, IdleItAnswersAndStopsLeavingNothing) {
  launch();
  const Reply status = ask("status");
  EXPECT_EQ(status.result.find("state")->as_string(), "stopped");
  EXPECT_EQ(ask("stop").exit_code, 4);
  EXPECT_EQ(ask("start").exit_code, 78);
  EXPECT_EQ(ask("nonsense").exit_code, 2);
  EXPECT_EQ(ask("stop", Json::object({{"all", true}})).exit_code, 0);
  EXPECT_EQ(wait_exit(), 0);
  EXPECT_TRUE(std::filesystem::is_empty(options_.values.runtime_dir));
  const Result<std::string> record =
      read_file(std::filesystem::path(options_.values.state_dir) / "state.json", 1 << 20);
  ASSERT_TRUE(record);
  EXPECT_EQ(parse_json(*record)->find("state")->as_string(), "stopped");
}

TEST_F(DaemonTest, AModelThatIsMissingEndsItWithItsCode) {
  options_.values.model = "/nowhere/model.gguf";
  launch();
  EXPECT_EQ(wait_exit(), 78);
}

TEST_F(DaemonTest, ASecondDaemonOfTheFolderIsRefused) {
  launch();
  (void)ask("status");
  const auto second = Daemon::create(options_, folder_.path());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::unavailable);
  EXPECT_EQ(ask("stop", Json::object({{"all", true}})).exit_code, 0);
  EXPECT_EQ(wait_exit(), 0);
}

TEST_F(DaemonTest, ASecondDaemonOfTheRecordsIsRefusedAndTouchesNone) {
  launch();
  (void)ask("status");
  OptionSet others = options_;
  others.values.runtime_dir = (folder_.path() / "other-run").string();
  const auto second = Daemon::create(others, folder_.path());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::unavailable);
  EXPECT_NE(second.error().message.find("--state-dir"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_empty(others.values.runtime_dir));
  EXPECT_EQ(ask("stop", Json::object({{"all", true}})).exit_code, 0);
  EXPECT_EQ(wait_exit(), 0);
}

TEST_F(DaemonTest, WorkersThatFailForGoodFailTheStartAndAreLogged) {
  SKIP_WITHOUT(default_model_path());
  program("plimsoll-worker", "echo 'cannot do that' >&2; exit 78");
  program("plimsoll-router", "exec sleep 100");
  options_.values.model = default_model_path().string();
  options_.values.context_length = 512;
  launch();
  EXPECT_EQ(wait_exit(), 78);
  const Result<std::string> log =
      read_file(std::filesystem::path(options_.values.state_dir) / "plimsolld.log", 1 << 20);
  ASSERT_TRUE(log);
  EXPECT_NE(log->find("worker 0.0: cannot do that\n"), std::string::npos) << *log;
  EXPECT_NE(log->find("exited with code 78"), std::string::npos) << *log;
  EXPECT_TRUE(std::filesystem::is_empty(options_.values.runtime_dir));
}

TEST_F(DaemonTest, StopDuringLoadIsFastAlthoughNobodyListens) {
  SKIP_WITHOUT(default_model_path());
  program("plimsoll-worker", "trap '' TERM; while :; do sleep 1; done");
  program("plimsoll-router", "exec sleep 100");
  options_.values.model = default_model_path().string();
  options_.values.context_length = 512;
  launch();
  while (ask("status").result.find("state")->as_string() != "loading") {
  }
  const TimePoint start = now();
  EXPECT_EQ(ask("stop", Json::object({{"all", true}})).exit_code, 0);
  EXPECT_EQ(wait_exit(), 0);
  EXPECT_LT(to_seconds(now() - start), 5);
}

}  // namespace
}  // namespace plimsoll
