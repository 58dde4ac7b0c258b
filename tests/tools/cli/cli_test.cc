#include "tools/cli/cli.h"

#include <algorithm>
#include <atomic>

#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/options/option_print.h"
#include "tests/support/fake_daemon.h"
#include "tests/support/scripted_server.h"
#include "tests/support/test_data.h"
#include "tests/tools/cli/cli_harness.h"

namespace plimsoll {
namespace {

TEST_F(Cli, ExitCodesSayWhatWentWrong) {
  const std::string file = model();
  const struct {
    std::vector<std::string> words;
    int code;
  } cases[] = {{{"version"}, 0},
               {{"help"}, 0},
               {{"help", "start"}, 0},
               {{"help", "nonsense"}, 2},
               {{"nonsense"}, 2},
               {{"reconfigure"}, 2},
               {{"reconfigure", "port"}, 2},
               {{"reconfigure", "--set", "port"}, 2},
               {{"reconfigure", "--based-on", "x", "port=1"}, 78},
               {{"reconfigure", "--file", "/nowhere.conf"}, 78},
               {{"reconfigure", "--set", "port=1", "--set", "tp=2"}, 4},
               {{"history"}, 4},
               {{"diff"}, 4},
               {{"rollback"}, 4},
               {{"logs", "-n", "x"}, 78},
               {{"chat", "--max-tokens", "0", "hi"}, 78},
               {{"chat", "--max-tokens"}, 2},
               {{"chat", "--temperature", "x", "hi"}, 78},
               {{"status", "--bogus"}, 78},
               {{"config", "nonsense"}, 2},
               {{"status"}, 4},
               {{"stop"}, 4},
               {{"restart"}, 4},
               {{"reconfigure", "port=1"}, 4},
               {{"chat", "hi"}, 4},
               {{"logs"}, 4},
               {{"start"}, 78},
               {{"plan"}, 78},
               {{"plan", "--model", file}, 0},
               {{"plan", "--model", file, "--device-memory", "1MiB"}, 3},
               {{"plan", "--model", file, "--tp", "60"}, 78},
               {{"plan", "--model", file, "--tpp", "2"}, 78},
               {{"plan", "--model", "/nowhere.gguf"}, 78},
               {{"explain"}, 2},
               {{"explain", "a", "b", "c"}, 2},
               {{"explain", "/nowhere.log"}, 78},
               {{"explain", golden_path("logs/noise.log").string()}, 78},
               {{"explain", golden_path("logs/sglang-failing.log").string()}, 0},
               {{"config", "check", "--port", "70000"}, 78},
               {{"config", "check", "--port", "7000"}, 0}};
  for (const auto& c : cases) {
    const Done done = run(c.words);
    EXPECT_EQ(done.code, c.code) << c.words.front() << ": " << done.out << done.err;
    EXPECT_EQ(done.err.empty(), c.code == 0) << c.words.front() << ": " << done.err;
  }
  EXPECT_EQ(run_plainly({}).code, 2);
}

TEST_F(Cli, TheVersionIsAlsoAFlag) {
  const Done flag = run_plainly({"--version"});
  EXPECT_EQ(flag.code, 0) << flag.err;
  EXPECT_EQ(flag.out, run_plainly({"version"}).out);
}

TEST_F(Cli, ConfigShowsWhatHoldsWhereNothingIsSaid) {
  const Done shown = run({"config", "show", "--model", "/models/tiny.gguf"});
  EXPECT_NE(shown.out.find("served-model-name = tiny\n"), std::string::npos) << shown.out;
  const Done plain = run_plainly({"config", "show", "--config", "/dev/null"});
  EXPECT_EQ(plain.out.find("runtime-dir =\n"), std::string::npos) << plain.out;
  EXPECT_EQ(plain.out.find("state-dir =\n"), std::string::npos) << plain.out;
}

TEST_F(Cli, PathsOfAChangeAreThoseOfTheCallersFolder) {
  write_state("new.conf", "draft-model = small.gguf\nport = 1\n");
  FakeDaemon daemon(
      runtime(), [](const Command&) { return Reply{.exit_code = 0, .message = "", .result = {}}; });
  ASSERT_EQ(run({"reconfigure", "model_path=tiny.gguf", "machine=", "--file",
                 (state() / "new.conf").string()})
                .code,
            0);
  ASSERT_EQ(daemon.commands().size(), 1U);
  const Json arguments = daemon.commands()[0].arguments;
  const std::string here = std::filesystem::current_path().string();
  EXPECT_EQ(dump_json(*arguments.find("assignments")),
            R"([["model_path",")" + here + R"(/tiny.gguf"],["machine",""]])");
  EXPECT_EQ(arguments.find("file_options")->find("draft-model")->find("value")->as_string(),
            here + "/small.gguf");
  EXPECT_EQ(arguments.find("file_options")->find("machine")->find("value")->as_string(), "");
}

TEST_F(Cli, AStartNamesOptionsOfTheDaemonThatItDoesNotRepeat) {
  OptionSet had;
  had.values.port = 0;
  had.values.threads = 3;
  had.values.tp = 2;
  for (const char* name : {"port", "threads", "tp"}) had.origins[name] = {Source::flag, ""};
  FakeDaemon daemon(runtime(), [&](const Command& command) {
    return Reply{.exit_code = 0,
                 .message = "",
                 .result = command.verb == "config" ? option_set_to_json(had) : serving("")};
  });
  const Done started = run({"start", "--model", "tiny.gguf", "--tp", "1"});
  EXPECT_EQ(started.code, 0) << started.err;
  EXPECT_NE(started.err.find("threads was 3 and is auto, port was 0 and is 8000; repeat"),
            std::string::npos)
      << started.err;
  EXPECT_EQ(started.err.find("tp was"), std::string::npos) << started.err;
}

TEST_F(Cli, JsonIsAnsweredWhateverHappens) {
  const std::vector<std::string> refused[] = {{"nonsense", "--json"},
                                              {"status", "--nonsense", "--json"},
                                              {"help", "nonsense", "--json"},
                                              {"config", "nonsense", "--json"},
                                              {"config", "check", "--port", "70000", "--json"},
                                              {"chat", "--max-tokens", "0", "hi", "--json"},
                                              {"plan", "--json"},
                                              {"logs", "-n", "x", "--json"},
                                              {"reconfigure", "port", "--json"},
                                              {"status", "--json"},
                                              {"logs", "--json"}};
  for (const std::vector<std::string>& words : refused) {
    const Done done = run(words);
    const Result<Json> json = parse_json(done.out);
    ASSERT_TRUE(json && json->is_object()) << words.front() << ": " << done.out << done.err;
    ASSERT_NE(json->find("exit_code"), nullptr) << done.out;
    EXPECT_EQ(json->find("exit_code")->as_int(), done.code) << words.front();
    ASSERT_NE(json->find("message"), nullptr) << done.out;
    EXPECT_NE(done.err.find(json->find("message")->as_string()), std::string::npos) << done.err;
  }
  const std::pair<std::vector<std::string>, std::string> texts[] = {
      {{"config", "default"}, default_config_file()},
      {{"config", "reference"}, option_reference()},
      {{"help"}, run({"help"}).out},
      {{"help", "start"}, run({"help", "start"}).out},
      {{"start", "--help"}, run({"help", "start"}).out}};
  for (auto [words, text] : texts) {
    words.emplace_back("--json");
    const Result<Json> json = parse_json(run(words).out);
    ASSERT_TRUE(json) << words.front();
    EXPECT_EQ(json->find("text")->as_string(), text);
  }
}

TEST_F(Cli, ExplainNamesTheFractionFirstOfTwoLogs) {
  const std::string working = golden_path("logs/sglang-working.log").string();
  const std::string failing = golden_path("logs/sglang-failing.log").string();
  const Done one = run({"explain", failing});
  EXPECT_NE(one.out.find("raise --mem-fraction-static to 0.770 or more"), std::string::npos)
      << one.out;
  const Done two = run({"explain", working, failing});
  const std::string first =
      "  mem-fraction-static 0.88 (auto, from that log) -> 0.55 (flag): "
      "KV 10.43 GiB -> -20.59 GiB\n";
  EXPECT_NE(two.out.find("(no memory for KV)\n\n" + first), std::string::npos) << two.out;
  EXPECT_NE(two.out.find("about 1,375 tokens"), std::string::npos) << two.out;
  EXPECT_NE(two.out.find("0.772 or more: there one request of 4,096 tokens"), std::string::npos)
      << two.out;
  EXPECT_LT(std::ranges::count(two.out, '\n'), 60);
  const Done reversed = run({"explain", failing, working});
  EXPECT_NE(reversed.out.find("KV -20.59 GiB -> 10.43 GiB"), std::string::npos) << reversed.out;
  EXPECT_NE(reversed.out.find("raise --mem-fraction-static"), std::string::npos) << reversed.out;

  const Result<Json> json = parse_json(run({"explain", working, failing, "--json"}).out);
  ASSERT_TRUE(json);
  const Json& difference = json->find("differences")->as_array().at(0);
  EXPECT_EQ(difference.find("name")->as_string(), "mem-fraction-static");
  EXPECT_EQ(json->find("logs")->as_array().at(1).find("outcome")->as_string(), "no-kv");
  const Result<Json> alone = parse_json(run({"explain", failing, "--json"}).out);
  ASSERT_TRUE(alone);
  EXPECT_EQ(alone->find("fraction_window")->find("any_kv_min")->as_double(), 0.77);
  const Done noise = run({"explain", golden_path("logs/noise.log").string()});
  EXPECT_NE(noise.err.find("looked for"), std::string::npos) << noise.err;
}

TEST_F(Cli, APlanFromALogReplaysItToTheLastDigit) {
  const Json golden = *parse_json(read_test_file(golden_path("models/kimi-k2.5.json")));
  const std::filesystem::path config = folder_.path() / "config.json";
  ASSERT_TRUE(write_file(config, dump_json(*golden.find("config"))));
  const std::string failing = golden_path("logs/sglang-failing.log").string();
  const Done failed = run({"plan", "--from-log", failing, "--model", config.string()});
  EXPECT_EQ(failed.code, 3) << failed.err;
  EXPECT_NE(failed.err.find("mem-fraction-static 0.550 leaves -20.59 GiB for KV"),
            std::string::npos)
      << failed.err;
  EXPECT_NE(failed.err.find("0.770 is the smallest mem-fraction-static"), std::string::npos);
  const Done raised = run({"plan", "--from-log", failing, "--model", config.string(),
                           "--mem-fraction-static", "0.88", "--explain", "kv", "--json"});
  EXPECT_EQ(raised.code, 0) << raised.err;
  const Result<Json> json = parse_json(raised.out);
  ASSERT_TRUE(json) << raised.out;
  EXPECT_EQ(json->find("term")->as_string(), "kv");
  EXPECT_EQ(json->find("ranks")->as_array().size(), 1U);
  const std::string sizeless = golden_path("logs/vllm-0.11-engine-core.log").string();
  const Done unknown = run({"plan", "--from-log", sizeless, "--model", config.string()});
  EXPECT_EQ(unknown.code, 78);
  EXPECT_NE(unknown.err.find("does not say how large its devices are"), std::string::npos)
      << unknown.err;
  EXPECT_EQ(run({"plan", "--from-log", sizeless, "--model", config.string(), "--tp", "8",
                 "--devices", "simulated:140GiB"})
                .err.find("does not say how large"),
            std::string::npos);
  const Done nameless = run({"plan", "--from-log", failing});
  EXPECT_EQ(nameless.code, 78);
  EXPECT_NE(nameless.err.find("the log names /models/kimi-k2.5-int4"), std::string::npos)
      << nameless.err;
}

TEST_F(Cli, APlanRefusesATokenizerThatTheRouterCannotRead) {
  const std::string file = model();
  std::string bytes = read_file(file, kMiB * 16).value();
  bytes.replace(bytes.find("gpt2", bytes.find("tokenizer.ggml.model")), 4, "bert");
  ASSERT_TRUE(write_file(file, bytes));
  const Done done = run({"plan", "--model", file});
  EXPECT_EQ(done.code, 78);
  EXPECT_NE(done.err.find("tokenizer is 'bert'"), std::string::npos) << done.err;
}

TEST_F(Cli, APlanIsATableOrJson) {
  const std::string file = model();
  const Done table = run({"plan", "--model", file, "--tp", "2"});
  EXPECT_EQ(table.out.rfind("fits: 1 replica of 2 ranks", 0), 0U) << table.out << table.err;
  const Result<Json> json = parse_json(run({"plan", "--model", file, "--json"}).out);
  ASSERT_TRUE(json);
  EXPECT_NE(json->find("ranks"), nullptr);
  EXPECT_NE(json->find("window"), nullptr);
  const Done refused = run({"plan", "--model", file, "--device-memory=1MiB"});
  EXPECT_NE(refused.err.find("--device-memory"), std::string::npos);
  EXPECT_EQ(refused.out.rfind("does not fit", 0), 0U);
}

TEST_F(Cli, ConfigPrintsWhatTheTableSays) {
  EXPECT_EQ(run({"config", "default"}).out, default_config_file());
  EXPECT_EQ(run({"config", "reference"}).out, option_reference());
  EXPECT_EQ(run({"config", "schema"}).out, dump_json(option_schema(), 2) + "\n");
  const Result<Json> shown = parse_json(run({"config", "show", "--json", "--port", "9"}).out);
  ASSERT_TRUE(shown);
  EXPECT_EQ(dump_json(*shown->find("port")), R"({"value":9,"source":"flag","place":"--port"})");
  EXPECT_NE(run({"config", "show", "--origin", "--port", "9"}).out.find("# flag --port"),
            std::string::npos);
}

TEST_F(Cli, ADeadDaemonsLastStateIsShownAsOld) {
  write_state("state.json", dump_json(serving("http://x")));
  const Done done = run({"status"});
  EXPECT_EQ(done.code, 4);
  EXPECT_NE(done.out.find("last known"), std::string::npos);
  const Done as_json = run({"status", "--json"});
  EXPECT_EQ(as_json.code, 4);
  const Result<Json> json = parse_json(as_json.out);
  ASSERT_TRUE(json);
  EXPECT_EQ(json->find("state")->as_string(), "not_running");
  EXPECT_EQ(json->find("last_known")->find("state")->as_string(), "serving");
}

TEST_F(Cli, StatusShowsWhatTheDaemonSays) {
  const FakeDaemon daemon(runtime(), [](const Command&) {
    return Reply{.exit_code = 0, .message = "", .result = serving("http://127.0.0.1:1")};
  });
  EXPECT_NE(run({"status"}).out.find("serving at http://127.0.0.1:1"), std::string::npos);
  const Done json = run({"status", "--json"});
  EXPECT_EQ(json.code, 0);
  EXPECT_NE(json.out.find("\n  \"url\": \"http://127.0.0.1:1\""), std::string::npos) << json.out;
  EXPECT_EQ(run({"status", "--wait"}).code, 0);
}

TEST_F(Cli, WaitingEndsWhereTheDeploymentHasFailed) {
  int asked = 0;
  const FakeDaemon daemon(runtime(), [&](const Command&) {
    const char* states[] = {"loading", "warming", "failed"};
    return Reply{.exit_code = 0,
                 .message = "",
                 .result = Json::object(
                     {{"state", states[std::min(asked++, 2)]}, {"reason", "rank 0 died"}})};
  });
  const Done done = run({"status", "--wait"});
  EXPECT_EQ(done.code, 1);
  EXPECT_NE(done.out.find("rank 0 died"), std::string::npos) << done.out;
}

TEST_F(Cli, CommandsReachTheDaemonAndItsWordsTheUser) {
  FakeDaemon daemon(runtime(), [](const Command& command) {
    if (command.verb == "reconfigure") {
      return Reply{.exit_code = 3, .message = "the plan does not fit", .result = {}};
    }
    if (command.verb == "start") {
      return Reply{.exit_code = 75, .message = "already running", .result = {}};
    }
    return Reply{.exit_code = 0, .message = "done", .result = {}};
  });
  const Done reconfigured = run({"reconfigure", "device-memory=1MiB", "port=1"});
  EXPECT_EQ(reconfigured.code, 3);
  EXPECT_EQ(reconfigured.err, "plimsoll reconfigure: the plan does not fit\n");
  EXPECT_EQ(run({"restart"}).out, "done\n");
  EXPECT_EQ(run({"stop"}).code, 0);
  EXPECT_EQ(run({"start", "--model", "m.gguf", "--tp", "2"}).code, 75);
  const std::vector<Command> commands = daemon.commands();
  ASSERT_EQ(commands.size(), 5U);
  EXPECT_EQ(commands[3].verb, "config");  // what a start may drop
  EXPECT_EQ(dump_json(commands[0].arguments),
            R"({"assignments":[["device-memory","1MiB"],["port","1"]]})");
  EXPECT_EQ(dump_json(commands[2].arguments), R"({"all":false})");
  const Json* options = commands[4].arguments.find("options");
  ASSERT_NE(options, nullptr);
  EXPECT_EQ(options->find("tp")->find("value")->as_int(), 2);
  const std::string sent = options->find("model")->find("value")->as_string();
  EXPECT_TRUE(std::filesystem::path(sent).is_absolute()) << sent;
}

TEST_F(Cli, LogsShowTheLastLines) {
  write_state("plimsolld.log", "one\ntwo\nthree\n");
  EXPECT_EQ(run({"logs", "-n", "2"}).out, "two\nthree\n");
  EXPECT_EQ(run({"logs", "-n", "1", "--json"}).out, "{\"line\":\"three\"}\n");
}

TEST_F(Cli, AMistakeInTheConfigurationHidesNoDaemonThatRuns) {
  std::filesystem::create_directories(state());
  const std::string file = (folder_.path() / "bad.conf").string();
  std::ofstream(file) << "portt = 8000\nruntime-dir = " << runtime().string() << "\n";
  const std::vector<std::string> words = {"status", "--json", "--config", file};
  EXPECT_EQ(run_plainly(words).code, 78);  // nothing runs: the mistake is the answer
  const FakeDaemon daemon(runtime(), [](const Command&) {
    return Reply{.exit_code = 0, .message = "", .result = serving("http://127.0.0.1:1")};
  });
  const Done shown = run_plainly(words);
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_NE(shown.out.find("\"serving\""), std::string::npos) << shown.out;
  EXPECT_NE(shown.err.find("portt"), std::string::npos) << shown.err;
  EXPECT_EQ(run_plainly({"config", "show", "--config", file}).code, 78);
}

TEST_F(Cli, LogsOfARankHaveWhatTheDaemonSaysOfIt) {
  write_state(
      "plimsolld.log",
      "a worker 0.1: mine\nb plimsolld: replica 0: rank 1 (pid 7) was killed by SIGKILL\n"
      "c plimsolld: replica 0: rank 10 (pid 8) was killed by SIGKILL\nd worker 0.0: hers\n");
  EXPECT_EQ(run({"logs", "--rank", "0.1"}).out,
            "a worker 0.1: mine\nb plimsolld: replica 0: rank 1 (pid 7) was killed by SIGKILL\n");
}

TEST_F(Cli, ABundleHasWhatIsKnownAndWhyTheRestIsMissing) {
  write_state("plimsolld.log", "one\ntwo\n");
  const std::string file = (folder_.path() / "bundle.json").string();
  const Done done = run({"bundle", file});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.out.rfind(file + ": version", 0), 0U) << done.out;
  const Result<std::string> text = read_file(file, 1 << 20);
  ASSERT_TRUE(text) << text.error().message;
  const Result<Json> bundle = parse_json(*text);
  ASSERT_TRUE(bundle) << bundle.error().message;
  EXPECT_EQ(dump_json(*bundle->find("log")), R"(["one","two"])");
  EXPECT_EQ(bundle->find("version")->find("version")->as_string(), PLIMSOLL_VERSION);
  EXPECT_EQ(bundle->find("status")->find("state")->as_string(), "not_running");
  EXPECT_NE(bundle->find("options")->find("tp"), nullptr) << *text;
  EXPECT_NE(bundle->find("machine")->find("host"), nullptr) << *text;
  EXPECT_NE(bundle->find("history")->find("message"), nullptr) << *text;

  const Done again = run({"bundle", file});
  EXPECT_EQ(again.code, 2);
  EXPECT_NE(again.err.find("is there already"), std::string::npos) << again.err;
}

TEST_F(Cli, LogsOfARunningDaemonAreWhereItSays) {
  const std::filesystem::path path = folder_.path() / "elsewhere.log";
  std::ofstream(path) << "here\n";
  const FakeDaemon daemon(runtime(), [&](const Command&) {
    return Reply{
        .exit_code = 0, .message = "", .result = Json::object({{"log_file", path.string()}})};
  });
  EXPECT_EQ(run({"logs"}).out, "here\n");
}

std::string event(const std::string& data) { return "data: " + data + "\n\n"; }

TEST_F(Cli, ChatStreamsTheAnswerAndSaysHowFastItWas) {
  const std::string answer =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" +
      event(R"({"choices":[{"delta":{"content":"Hello"}}]})") +
      event(R"({"choices":[{"delta":{"content":" there"},"finish_reason":"stop"}]})") +
      event(R"({"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}})") +
      event("[DONE]");
  ScriptedServer server({{{answer}, false}, {{answer}, false}});
  const std::string url = server.url("");
  const FakeDaemon daemon(runtime(), [&](const Command&) {
    return Reply{.exit_code = 0, .message = "", .result = serving(url)};
  });
  const Done done = run({"chat", "--max-tokens", "8", "hi"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.out, "Hello there\n");
  EXPECT_NE(done.err.find("[2 tokens, "), std::string::npos) << done.err;
  const Done talk = run({"chat"}, "hi\n\n");
  EXPECT_EQ(talk.code, 0) << talk.err;
  EXPECT_EQ(talk.out, "Hello there\n");
  EXPECT_NE(server.requests().at(0).find(R"("max_tokens":8)"), std::string::npos);
}

TEST_F(Cli, ChatSaysWhyThereIsNoAnswer) {
  const std::string body = R"({"error":{"message":"the queue is full"}})";
  ScriptedServer server({{{"HTTP/1.1 503 Service Unavailable\r\nContent-Length: " +
                           std::to_string(body.size()) + "\r\n\r\n" + body},
                          false}});
  std::atomic<const char*> state = "serving";  // the daemon answers in a thread of its own
  const FakeDaemon daemon(runtime(), [&](const Command&) {
    Json status = serving(server.url(""));
    status.set("state", state.load());
    return Reply{.exit_code = 0, .message = "", .result = status};
  });
  const Done full = run({"chat", "hi"});
  EXPECT_EQ(full.code, 75);
  EXPECT_EQ(full.err, "plimsoll chat: the queue is full\n");
  const std::pair<const char*, int> codes[] = {
      {"starting", 75}, {"draining", 75}, {"stopped", 4}, {"failed", 1}};
  for (const auto& [other, code] : codes) {
    state = other;
    const Done done = run({"chat", "hi"});
    EXPECT_EQ(done.code, code) << other;
    EXPECT_NE(done.err.find(other), std::string::npos) << done.err;
  }
}

}  // namespace
}  // namespace plimsoll
