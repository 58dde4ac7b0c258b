#include "tools/cli/daemon_client.h"

#include <gtest/gtest.h>

#include "shared/control/endpoints.h"
#include "tests/support/fake_daemon.h"
#include "tests/support/temp_folder.h"

namespace plimsoll {
namespace {

Reply echo(const Command& command) {
  return {.exit_code = 0, .message = command.verb, .result = command.arguments};
}

TEST(DaemonClient, GetsTheReplyToItsCommand) {
  const TempFolder folder;
  FakeDaemon daemon(folder.path(), echo);
  EXPECT_TRUE(is_daemon_listening(folder.path()));
  Result<DaemonClient> client = DaemonClient::connect(folder.path());
  ASSERT_TRUE(client);
  const Result<Reply> reply =
      client->ask({.verb = "stop", .arguments = Json::object({{"all", true}})}, seconds(20));
  ASSERT_TRUE(reply) << reply.error().message;
  EXPECT_EQ(reply->message, "stop");
  EXPECT_EQ(dump_json(reply->result), R"({"all":true})");
}

TEST(DaemonClient, NobodyListensWhereNoDaemonRuns) {
  const TempFolder folder;
  EXPECT_FALSE(is_daemon_listening(folder.path()));
  { const FakeDaemon daemon(folder.path(), echo); }
  EXPECT_FALSE(is_daemon_listening(folder.path()));
  EXPECT_FALSE(is_daemon_listening(std::string(300, 'x')));
}

TEST(DaemonClient, NoticesThatTheDaemonIsGone) {
  const TempFolder folder;
  Result<DaemonClient> client = DaemonClient::connect(folder.path());
  ASSERT_TRUE(client);
  const Result<Reply> reply = client->ask({.verb = "stop", .arguments = {}}, seconds(20));
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, Code::unavailable);
}

TEST(DaemonClient, ADaemonThatNeverAnswersIsLeftAtTheDeadline) {
  const TempFolder folder;
  const Result<Channel> mute = Channel::bind(control_endpoint(folder.path()), 0600);
  ASSERT_TRUE(mute);
  Result<DaemonClient> client = DaemonClient::connect(folder.path());
  ASSERT_TRUE(client);
  const Result<Reply> reply = client->ask({.verb = "status", .arguments = {}}, milliseconds(50));
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, Code::timed_out);
}

}  // namespace
}  // namespace plimsoll
