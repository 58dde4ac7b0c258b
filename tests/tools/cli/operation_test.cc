#include "tools/cli/operation.h"

#include <sstream>

#include <gtest/gtest.h>

#include "tests/support/fake_daemon.h"
#include "tests/support/temp_folder.h"

namespace plimsoll {
namespace {

struct CallOfRestart {
  TempFolder folder;
  CommandLine line;
  OptionSources sources;
  OptionSet options;
  std::ostringstream out, err;
  std::istringstream in;
  Console console{out, err, in, false};
  Invocation call{line, sources, options, console};

  CallOfRestart() {
    line.verb = "restart";
    options.values.runtime_dir = folder.path().string();
  }
};

TEST(Operation, ReportsSuccessOnStdoutAndRefusalsOnStderr) {
  CallOfRestart done;
  EXPECT_EQ(report_reply(done.call, {.exit_code = 0, .message = "stopped", .result = {}}), 0);
  EXPECT_EQ(done.out.str(), "stopped\n");
  CallOfRestart refused;
  EXPECT_EQ(report_reply(refused.call, {.exit_code = 3, .message = "too big", .result = {}}), 3);
  EXPECT_EQ(refused.out.str(), "");
  EXPECT_EQ(refused.err.str(), "plimsoll restart: too big\n");
}

TEST(Operation, JsonHasTheExitCodeTheMessageAndTheResult) {
  CallOfRestart setup;
  setup.line.json = true;
  const Reply reply{.exit_code = 0, .message = "m", .result = Json::object({{"url", "u"}})};
  EXPECT_EQ(report_reply(setup.call, reply), 0);
  const Result<Json> json = parse_json(setup.out.str());
  ASSERT_TRUE(json);
  EXPECT_EQ(dump_json(*json), R"({"exit_code":0,"message":"m","url":"u"})");
}

TEST(Operation, ShowsWhatTheDaemonDoesUntilItReplies) {
  CallOfRestart setup;
  const FakeDaemon daemon(setup.folder.path(), [](const Command& command) {
    return Reply{.exit_code = 0, .message = command.verb, .result = {}};
  });
  const Result<Reply> reply = run_operation(setup.call, {.verb = "restart", .arguments = {}});
  ASSERT_TRUE(reply) << reply.error().message;
  EXPECT_EQ(reply->message, "restart");
}

TEST(Operation, NotRunningNamesTheFolder) {
  CallOfRestart setup;
  EXPECT_FALSE(is_daemon_running(setup.call));
  EXPECT_EQ(report_not_running(setup.call), 4);
  EXPECT_NE(setup.err.str().find(setup.folder.path().string()), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
