#include "tools/cli/daemon_client.h"

#include <filesystem>
#include <future>
#include <string>

#include <gtest/gtest.h>
#include <sys/fsuid.h>
#include <unistd.h>

#include "shared/control/endpoints.h"
#include "tests/support/fake_daemon.h"
#include "tests/support/fake_leader.h"
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

TEST(DaemonClient, ASilentDaemonIsNamedByItsPid) {
  const TempFolder folder;
  const Result<Channel> silent = Channel::bind(control_endpoint(folder.path()), 0600);
  ASSERT_TRUE(silent) << silent.error().message;
  Result<DaemonClient> client = DaemonClient::connect(folder.path());
  ASSERT_TRUE(client);
  const Result<Reply> reply =
      client->ask({.verb = "stop", .arguments = Json::object()}, milliseconds(1));
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, Code::timed_out);
  EXPECT_NE(reply.error().message.find("(pid " + std::to_string(::getpid()) + ")"),
            std::string::npos)
      << reply.error().message;
}

TEST(DaemonClient, WhatFailsWhileWaitingEndsTheWait) {
  const TempFolder folder;
  const Result<Channel> silent = Channel::bind(control_endpoint(folder.path()), 0600);
  ASSERT_TRUE(silent) << silent.error().message;
  Result<DaemonClient> client = DaemonClient::connect(folder.path());
  ASSERT_TRUE(client);
  const Result<Reply> reply =
      client->ask_and_wait({.verb = "stop", .arguments = Json::object()},
                           []() -> Status { return timed_out("nobody is there"); });
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().message, "nobody is there");
}

TEST(DaemonClient, NobodyListensWhereNoDaemonRuns) {
  const TempFolder folder;
  EXPECT_FALSE(is_daemon_listening(folder.path()));
  { const FakeDaemon daemon(folder.path(), echo); }
  EXPECT_FALSE(is_daemon_listening(folder.path()));
  EXPECT_FALSE(is_daemon_listening(std::string(300, 'x')));
}

TEST(DaemonClient, AFolderOfAnotherUserIsNotTakenForOneWhereNobodyRuns) {
  const TempFolder folder;
  FakeDaemon daemon(folder.path(), echo);
  EXPECT_FALSE(barred_from_daemon(folder.path()));
  EXPECT_FALSE(barred_from_daemon(folder.path() / "nowhere"));
  std::filesystem::permissions(folder.path(), std::filesystem::perms::none);
  const unsigned nobody = 65534;
  if (::geteuid() == 0) (void)::setfsuid(nobody);  // root may use every folder
  const std::optional<std::string> barred = barred_from_daemon(folder.path());
  if (::geteuid() == 0) (void)::setfsuid(0);
  std::filesystem::permissions(folder.path(), std::filesystem::perms::owner_all);
  ASSERT_TRUE(barred);
  EXPECT_NE(barred->find("Permission denied"), std::string::npos) << *barred;
}

TEST(DaemonClient, NoticesThatTheDaemonIsGone) {
  const TempFolder folder;
  Result<DaemonClient> client = DaemonClient::connect(folder.path());
  ASSERT_TRUE(client);
  const Result<Reply> reply = client->ask({.verb = "stop", .arguments = {}}, seconds(20));
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, Code::unavailable);
}

// It waited for a day.
TEST(DaemonClient, AReplyThatWasLostWithTheConnectionIsNotWaitedFor) {
  for (const char* verb : {"reconfigure", "status"}) {
    const TempFolder folder;
    Result<Channel> daemon = Channel::bind(control_endpoint(folder.path()), 0600);
    ASSERT_TRUE(daemon);
    Result<DaemonClient> client = DaemonClient::connect(folder.path());
    ASSERT_TRUE(client);
    std::future<Result<Reply>> asked = std::async(std::launch::async, [&] {
      return client->ask({.verb = verb, .arguments = {}}, seconds(20));
    });
    ASSERT_TRUE(daemon->receive(seconds(10)));
    ASSERT_TRUE(break_connections(control_endpoint(folder.path())));
    if (std::string_view(verb) == "status") {  // asks again
      const auto again = daemon->receive(seconds(10));
      ASSERT_TRUE(again);
      ASSERT_TRUE(daemon->send(again->peer, Reply{.exit_code = 0, .message = "", .result = {}}));
      EXPECT_TRUE(asked.get());
      continue;
    }
    const Result<Reply> reply = asked.get();
    ASSERT_FALSE(reply);
    EXPECT_EQ(reply.error().code, Code::unavailable);
    EXPECT_NE(reply.error().message.find("may or may not be done"), std::string::npos)
        << reply.error().message;
  }
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
