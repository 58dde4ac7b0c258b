// history, diff, rollback and reconfigure, with records as a daemon leaves them.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include "shared/base/unique_fd.h"
#include "shared/generation/abandoned.h"
#include "shared/generation/generation_record.h"
#include "shared/options/option_table.h"
#include "shared/options/option_value.h"
#include "tests/support/fake_daemon.h"
#include "tests/support/test_data.h"
#include "tests/tools/cli/cli_harness.h"

namespace plimsoll {
namespace {

GenerationRecord generation(std::int64_t number, Outcome outcome, const std::string& context) {
  GenerationRecord record;
  record.number = number;
  record.started = 1'700'000'000;
  record.outcome = outcome;
  record.known_good = outcome == Outcome::serving || outcome == Outcome::stopped;
  record.cause = number == 1 ? "start" : "reconfigure";
  record.based_on = number - 1;
  if (outcome == Outcome::refused) record.message = "KV does not fit\nand more";
  OptionSet options;
  EXPECT_TRUE(set_option(options.values, *find_option("context-length"), context));
  options.origins["context-length"] = {Source::flag, "--context-length"};
  record.options = option_set_to_json(options);
  return record;
}

class CliGenerations : public Cli {
 protected:
  void keep(const GenerationRecord& record) const {
    std::filesystem::create_directories(generations_folder(state()));
    std::ofstream(generation_file(state(), record.number)) << dump_json(generation_to_json(record));
  }
  void keep_three() const {
    keep(generation(1, Outcome::stopped, "1024"));
    keep(generation(2, Outcome::serving, "2048"));
    keep(generation(3, Outcome::refused, "4096"));
  }
  Json status(std::int64_t number) const {
    Json json = serving("http://127.0.0.1:1");
    json.set("generation", number);
    json.set("state_dir", state().string());
    return json;
  }
};

TEST_F(CliGenerations, HistoryNeedsNoDaemon) {
  keep_three();
  std::ofstream(generation_file(state(), 4)) << "{";
  const Done done = run({"history"});
  EXPECT_EQ(done.code, 0);
  EXPECT_NE(done.out.find("reconfigure: context-length 1024 -> 2048"), std::string::npos)
      << done.out;
  EXPECT_NE(done.out.find("KV does not fit\n"), std::string::npos) << done.out;
  EXPECT_NE(done.err.find("00000004.json"), std::string::npos) << done.err;
  const Result<Json> json = parse_json(run({"history", "--json"}).out);
  ASSERT_TRUE(json);
  EXPECT_EQ(json->find("generations")->as_array().size(), 3U);
}

TEST_F(CliGenerations, AGenerationWhoseDaemonWasKilledServesNoMore) {
  keep_three();
  const Done done = run({"history"});
  EXPECT_EQ(done.out.find("serving"), std::string::npos) << done.out;
  EXPECT_NE(done.out.find("its daemon was killed"), std::string::npos) << done.out;
  EXPECT_NE(run({"diff"}).out.find("generation 2 (stopped: its daemon was killed)"),
            std::string::npos);
  std::ofstream(state_lock_file(state())) << "4711";
  const UniqueFd lock(::open(state_lock_file(state()).c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
  EXPECT_NE(run({"history"}).out.find("serving"), std::string::npos) << "one has the records";
}

TEST_F(CliGenerations, DiffIsOfTheFailedOneAgainstTheLastThatWorked) {
  keep_three();
  const Done done = run({"diff"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.out.find("generation 2"), 0U) << done.out;
  EXPECT_NE(done.out.find("generation 3 (refused: KV does not fit)"), std::string::npos);
  EXPECT_NE(done.out.find("2048"), std::string::npos) << done.out;
  const Result<Json> json = parse_json(run({"diff", "1", "3", "--json"}).out);
  ASSERT_TRUE(json);
  EXPECT_EQ(json->find("before")->find("label")->as_string(), "generation 1");
  const Json& first = json->find("differences")->as_array()[0];
  EXPECT_EQ(first.find("name")->as_string(), "context-length");
  EXPECT_EQ(first.find("after")->as_string(), "4096");
}

TEST_F(CliGenerations, DiffOfTheOneThatWorksIsAgainstTheLastWithOtherOptions) {
  keep(generation(1, Outcome::stopped, "1024"));
  keep(generation(2, Outcome::stopped, "2048"));
  keep(generation(3, Outcome::serving, "2048"));
  EXPECT_EQ(run({"diff"}).out.find("generation 1"), 0U);
  EXPECT_EQ(run({"diff", "1"}).code, 1);
  EXPECT_EQ(run({"diff", "9"}).code, 1);
  EXPECT_EQ(run({"diff", "x"}).code, 2);
}

TEST_F(CliGenerations, RollbackAsksForTheLastThatWorkedWithOtherOptions) {
  keep_three();
  FakeDaemon daemon(runtime(), [&](const Command& command) {
    const bool asks = command.verb == "status";
    return Reply{.exit_code = 0, .message = "", .result = asks ? status(2) : Json()};
  });
  EXPECT_EQ(run({"rollback"}).code, 0);
  EXPECT_EQ(run({"rollback", "3"}).code, 1);
  EXPECT_EQ(run({"rollback", "77"}).code, 1);
  const std::vector<Command> commands = daemon.commands();
  ASSERT_EQ(commands.size(), 1U);
  EXPECT_EQ(commands[0].verb, "reconfigure");
  EXPECT_EQ(commands[0].arguments.find("cause")->as_string(), "rollback to 1");
  EXPECT_EQ(commands[0].arguments.find("based_on")->as_int(), 2);
  EXPECT_EQ(*commands[0].arguments.find("options"),
            generation(1, Outcome::stopped, "1024").options);
}

TEST_F(CliGenerations, RollbackOfWhatFailedStartsWhatWorked) {
  keep_three();
  FakeDaemon daemon(runtime(), [&](const Command& command) {
    Json failed = status(3);
    failed.set("state", "failed");
    return Reply{
        .exit_code = 0, .message = "", .result = command.verb == "status" ? failed : Json()};
  });
  EXPECT_EQ(run({"rollback"}).code, 0);
  ASSERT_EQ(daemon.commands().size(), 1U);
  EXPECT_EQ(daemon.commands()[0].verb, "start");
  EXPECT_EQ(daemon.commands()[0].arguments.find("cause")->as_string(), "rollback to 2");
}

TEST_F(CliGenerations, ReconfigureSendsFilesDryRunsAndTheGenerationItWasMadeFor) {
  write_state("new.conf", "max-queued-requests = 9\n");
  const std::string file = (state() / "new.conf").string();
  FakeDaemon daemon(runtime(), [&](const Command&) {
    return Reply{.exit_code = 0, .message = "it fits", .result = {}};
  });
  const Done done = run({"reconfigure", "--file", file, "--set", "tp=2", "--set", "dp=3",
                         "--dry-run", "--based-on", "5"});
  EXPECT_EQ(done.code, 0) << done.err;
  ASSERT_EQ(daemon.commands().size(), 1U);
  const Json arguments = daemon.commands()[0].arguments;
  EXPECT_EQ(arguments.find("assignments")->as_array().size(), 2U);
  EXPECT_TRUE(arguments.find("dry_run")->as_bool());
  EXPECT_EQ(arguments.find("based_on")->as_int(), 5);
  const Json* queued = arguments.find("file_options")->find("max-queued-requests");
  EXPECT_EQ(queued->find("value")->as_int(), 9);
  EXPECT_NE(queued->find("place")->as_string().find("new.conf:1"), std::string::npos);
  write_state("new.conf", "tpp = 9\n");
  EXPECT_EQ(run({"reconfigure", "--file", file}).code, 78);
}

TEST_F(CliGenerations, DiffReadsLogsOfOtherServersOnEitherSide) {
  const std::string logs = (golden_path("logs") / "").string();
  const Done two =
      run({"diff", logs + "sglang-working.log", logs + "sglang-failing.log", "--json"});
  EXPECT_EQ(two.code, 0) << two.err;
  const Result<Json> json = parse_json(two.out);
  ASSERT_TRUE(json);
  const Json& first = json->find("differences")->as_array().front();
  EXPECT_EQ(first.find("name")->as_string(), "mem-fraction-static");
  EXPECT_FALSE(first.find("why")->as_string().empty());
  EXPECT_EQ(run({"diff", logs + "sglang-failing.log"}).code, 4)
      << "no generation to compare it with";
  keep_three();
  const Done mixed = run({"diff", "2", logs + "sglang-failing.log"});
  EXPECT_EQ(mixed.code, 0) << mixed.err;
  EXPECT_EQ(mixed.out.find("generation 2"), 0U) << mixed.out;
  EXPECT_EQ(run({"diff", "2", "/nowhere.log"}).code, 2);
}

}  // namespace
}  // namespace plimsoll
