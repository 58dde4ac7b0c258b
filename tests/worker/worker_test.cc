#include "worker/worker.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "shared/base/clock.h"
#include "shared/base/replica_segment.h"
#include "shared/base/shared_block.h"
#include "shared/control/channel.h"
#include "shared/machine/machine.h"
#include "shared/memory/measured.h"
#include "shared/memory/memory_plan.h"
#include "shared/options/option_parse.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace plimsoll {
namespace {

constexpr Duration kDeadline = seconds(40);

Machine small_machine() {
  Machine machine;
  machine.cpu_name = "test";
  machine.cpus = {0, 1};
  machine.nodes = {{.id = 0, .cpus = {0, 1}}};
  machine.memory_total = 8 * kGiB;
  machine.memory_available = 4 * kGiB;
  return machine;
}

// The supervisor's side of the protocol, with the workers as threads instead of processes.
class Supervisor {
 public:
  explicit Supervisor(std::int64_t tp) : tp_(tp) { plan(); }
  ~Supervisor() {
    if (segment_) segment_->abort("the test is over");
    for (Worker& worker : workers_) {
      if (worker.thread.joinable()) worker.thread.join();
    }
  }

  // Up to the last Ready.
  void start() {
    load();
    if (testing::Test::HasFatalFailure()) return;
    expect_from_all<Loaded>([&](const std::string&, const Loaded& loaded) {
      const Json* weights = loaded.measured.find("terms")->find("weights");
      ASSERT_NE(weights, nullptr);
      EXPECT_GT(weights->as_int(), 0);
    });
    for (const Worker& worker : workers_)
      say(worker.peer, Commit{plan_.decisions.kv_blocks, plan_.decisions.context_length});
    const bool is_simulated = options_.values.devices.starts_with("simulated");
    expect_from_all<Ready>([&](const std::string&, const Ready& ready) {
      EXPECT_NE(ready.device.find(is_simulated ? "simulated, " : "cpu "), std::string::npos);
      EXPECT_TRUE(measured_from_json(ready.measured));
    });
  }

  // Up to the last Load.
  void load(bool is_tentative = false) {
    for (std::int64_t rank = 0; rank < tp_; ++rank) launch(rank);
    expect_from_all<Hello>([&](const std::string& peer, const Hello& hello) {
      EXPECT_EQ(hello.role, "worker");
      EXPECT_EQ(hello.instance, "test");
      workers_.at(static_cast<std::size_t>(hello.rank)).peer = peer;
    });
    // Only now, since what comes from one while another is waited for would be passed over.
    say_load(is_tentative);
  }

  void say_load(bool is_tentative) {
    for (std::int64_t rank = 0; rank < tp_; ++rank) {
      Load load;
      load.options = option_set_to_json(options_);
      load.plan = memory_plan_to_json(plan_);
      load.rank = rank;
      if (rank == 0) load.request_endpoint = request_endpoint();
      load.is_tentative = is_tentative;
      say(workers_[static_cast<std::size_t>(rank)].peer, load);
    }
  }

  void say(const std::string& peer, const Message& message) {
    const Status sent = control_->send(peer, message);
    EXPECT_TRUE(sent) << sent.error().message;
  }
  // The leader last: once it has drained, the others may be gone.
  void say_to_all(const Message& message) {
    for (auto worker = workers_.rbegin(); worker != workers_.rend(); ++worker) {
      say(worker->peer, message);
    }
  }

  // One message of this type from each worker, in any order; others are passed over.
  template <typename T>
  void expect_from_all(const std::function<void(const std::string&, const T&)>& then) {
    std::int64_t missing = tp_;
    for (const TimePoint deadline = now() + kDeadline; missing > 0 && now() < deadline;) {
      const auto received = control_->receive(milliseconds(100));
      if (!received) continue;
      if (const auto* fault = std::get_if<Fault>(&received->message);
          fault != nullptr && !std::is_same_v<T, Fault>) {
        FAIL() << "a worker said: " << fault->message;
      }
      const auto* message = std::get_if<T>(&received->message);
      if (message == nullptr) continue;
      then(received->peer, *message);
      --missing;
    }
    ASSERT_EQ(missing, 0) << "messages did not come";
  }

  std::vector<int> exit_codes() {
    std::vector<int> codes;
    for (Worker& worker : workers_) {
      worker.thread.join();
      codes.push_back(worker.exit_code);
    }
    return codes;
  }

  std::string request_endpoint() const { return "ipc://" + (folder_.path() / "requests").string(); }
  ReplicaSegment& segment() { return *segment_; }
  MemoryPlan& memory_plan() { return plan_; }
  OptionSet& options() { return options_; }
  std::int64_t vocab() const { return vocab_; }

 private:
  struct Worker {
    std::thread thread;
    SocketPair pair;
    std::string peer;
    int exit_code = -1;
  };

  void plan() {
    const auto model = write_tiny_model({.type = DType::q4_1}, folder_.path());
    ASSERT_TRUE(model) << model.error().message;
    options_.values.model = *model;
    options_.values.tp = tp_;
    options_.values.threads = 1;
    options_.values.max_running_requests = 8;
    const auto file = GgufFile::open(*model);
    ASSERT_TRUE(file) << file.error().message;
    const auto spec = read_model_spec(*file);
    ASSERT_TRUE(spec) << spec.error().message;
    vocab_ = spec->vocab;
    auto planned = plan_memory(small_machine(), *spec, options_);
    ASSERT_TRUE(planned) << planned.error().message;
    ASSERT_FALSE(planned->refusal) << planned->refusal->message;
    plan_ = std::move(*planned);
    for (RankPlan& rank : plan_.ranks) rank.cpus.clear();  // whatever CPUs the test may use
    const ReplicaSegmentShape shape{.ranks = static_cast<int>(tp_)};
    auto memory = SharedBlock::create("test", replica_segment_bytes(shape));
    ASSERT_TRUE(memory) << memory.error().message;
    memory_.emplace(std::move(*memory));
    const auto segment = init_replica_segment(memory_->bytes(), shape);
    ASSERT_TRUE(segment) << segment.error().message;
    segment_.emplace(*segment);
    auto control = Channel::bind("ipc://" + (folder_.path() / "control").string(), 0600);
    ASSERT_TRUE(control) << control.error().message;
    control_.emplace(std::move(*control));
    workers_.resize(static_cast<std::size_t>(tp_));
  }

  void launch(std::int64_t rank) {
    Worker& worker = workers_[static_cast<std::size_t>(rank)];
    auto pair = descriptor_pair();
    ASSERT_TRUE(pair) << pair.error().message;
    worker.pair = std::move(*pair);
    ASSERT_TRUE(send_descriptor(worker.pair.parent.get(), "segment", memory_->fd()));
    WorkerArguments arguments;
    arguments.control = "ipc://" + (folder_.path() / "control").string();
    arguments.instance = "test";
    arguments.rank = rank;
    arguments.parent_fd = worker.pair.child.get();
    worker.thread = std::thread([&worker, arguments] { worker.exit_code = run_worker(arguments); });
  }

  std::int64_t tp_;
  TempFolder folder_;
  OptionSet options_;
  std::int64_t vocab_ = 0;
  MemoryPlan plan_;
  std::optional<SharedBlock> memory_;
  std::optional<ReplicaSegment> segment_;
  std::optional<Channel> control_;
  std::vector<Worker> workers_;
};

Generate twenty_tokens() {
  Generate generate;
  generate.id = 7;
  generate.prompt = {1, 2, 3};
  generate.sampling.max_tokens = 20;
  generate.sampling.seed = 5;
  return generate;
}

std::vector<std::int64_t> read_answer(Channel& router) {
  std::vector<std::int64_t> tokens;
  for (const TimePoint deadline = now() + kDeadline; now() < deadline;) {
    const auto received = router.receive(milliseconds(100));
    const auto* step = received ? std::get_if<StepTokens>(&received->message) : nullptr;
    if (step == nullptr) continue;
    for (const TokenEvent& event : step->events) {
      EXPECT_EQ(event.id, 7U);
      tokens.insert(tokens.end(), event.tokens.begin(), event.tokens.end());
      if (event.finish == "length") return tokens;
      EXPECT_EQ(event.finish, "") << event.error;
    }
  }
  ADD_FAILURE() << "the answer did not end";
  return tokens;
}

TEST(Worker, LivesFromHelloToDrained) {
  for (const std::int64_t tp : {1, 2, 4}) {
    SCOPED_TRACE(tp);
    Supervisor supervisor(tp);
    ASSERT_NO_FATAL_FAILURE(supervisor.start());
    auto router = Channel::connect(supervisor.request_endpoint());
    ASSERT_TRUE(router) << router.error().message;
    ASSERT_TRUE(router->send(twenty_tokens()));
    EXPECT_EQ(read_answer(*router).size(), 20U);
    supervisor.say_to_all(
        SetLive{.log_level = "warning", .max_queued_requests = 10, .step_time_max_ms = 100});
    supervisor.say_to_all(Ping{41});
    std::int64_t generated = 0;
    supervisor.expect_from_all<Pong>([&](const std::string&, const Pong& pong) {
      EXPECT_EQ(pong.sequence, 41);
      EXPECT_GE(pong.steps, 20);
      generated += pong.generated_tokens;
    });
    EXPECT_EQ(generated, 20);
    supervisor.say_to_all(Drain{.deadline_ms = 10'000});
    EXPECT_EQ(supervisor.exit_codes(), std::vector<int>(static_cast<std::size_t>(tp), 0));
  }
}

// What comes after {1, 2, 3} is 3 + 3, then 6 + 4, and so on.
std::vector<std::int64_t> twenty_fixed_tokens(std::int64_t vocab) {
  std::vector<std::int64_t> tokens = {1, 2, 3};
  for (int i = 0; i < 20; ++i) tokens.push_back((tokens.back() + std::ssize(tokens)) % vocab);
  return {tokens.begin() + 3, tokens.end()};
}

TEST(Worker, OnASimulatedDeviceLivesTheSameLifeAndAnswersFixedTokens) {
  for (const std::int64_t tp : {1, 4}) {
    SCOPED_TRACE(tp);
    Supervisor supervisor(tp);
    supervisor.options().values.devices = "simulated:94GiB";
    ASSERT_NO_FATAL_FAILURE(supervisor.start());
    auto router = Channel::connect(supervisor.request_endpoint());
    ASSERT_TRUE(router) << router.error().message;
    ASSERT_TRUE(router->send(twenty_tokens()));
    EXPECT_EQ(read_answer(*router), twenty_fixed_tokens(supervisor.vocab()));
    supervisor.say_to_all(Ping{1});
    supervisor.expect_from_all<Pong>([](const std::string&, const Pong& pong) {
      EXPECT_GE(pong.steps, 20);
      EXPECT_EQ(pong.kv_blocks_touched, 1);
    });
    supervisor.say_to_all(Drain{.deadline_ms = 10'000});
    EXPECT_EQ(supervisor.exit_codes(), std::vector<int>(static_cast<std::size_t>(tp), 0));
  }
}

TEST(Worker, OnASimulatedDeviceThatIsTooSmallSaysWhatItLacks) {
  Supervisor supervisor(1);
  supervisor.options().values.devices = "simulated:1MiB";
  ASSERT_NO_FATAL_FAILURE(supervisor.load());
  supervisor.expect_from_all<Fault>([](const std::string&, const Fault& fault) {
    EXPECT_EQ(fault.code, "does_not_fit");
    EXPECT_NE(fault.message.find("the simulated device is out of memory"), std::string::npos);
  });
  EXPECT_EQ(supervisor.exit_codes(), std::vector<int>{3});
}

TEST(Worker, CanBeCalledOffBeforeItIsReady) {
  Supervisor supervisor(1);
  ASSERT_NO_FATAL_FAILURE(supervisor.load());
  supervisor.say_to_all(Drain{.deadline_ms = 1000});
  EXPECT_EQ(supervisor.exit_codes(), std::vector<int>{0});
}

TEST(Worker, LeavesWhenAPeerHasDied) {
  Supervisor supervisor(2);
  ASSERT_NO_FATAL_FAILURE(supervisor.start());
  supervisor.segment().abort("rank 1 was killed by signal 9");
  supervisor.expect_from_all<Fault>([](const std::string&, const Fault& fault) {
    EXPECT_EQ(fault.code, "unavailable");
    EXPECT_NE(fault.message.find("killed by signal 9"), std::string::npos) << fault.message;
  });
  EXPECT_EQ(supervisor.exit_codes(), (std::vector<int>{75, 75}));
}

TEST(Worker, ATentativeLoadIsAnsweredWithWhatTheDeviceHasAndNothingIsLoaded) {
  Supervisor supervisor(2);
  supervisor.options().values.devices = "simulated:94GiB";
  supervisor.memory_plan().ranks[1].rows.push_back(
      {.term = Term::context, .bytes = kGiB, .formula = {}});
  ASSERT_NO_FATAL_FAILURE(supervisor.load(true));
  std::vector<Bytes> contexts;
  supervisor.expect_from_all<Opened>([&](const std::string&, const Opened& opened) {
    contexts.push_back(opened.context);
    EXPECT_EQ(opened.context + opened.free, 94 * kGiB);
  });
  std::ranges::sort(contexts);
  EXPECT_EQ(contexts, (std::vector<Bytes>{0, kGiB}));
  // Another plan comes of it, once more tentative, and then it counts.
  supervisor.memory_plan().ranks[1].rows.back().bytes = 2 * kGiB;
  supervisor.say_load(true);
  supervisor.say_load(false);
  supervisor.expect_from_all<Loaded>([&](const std::string&, const Loaded& loaded) {
    const Json* context = loaded.measured.find("terms")->find("context");
    if (context == nullptr || context->as_int() == 0) return;  // of rank 0
    EXPECT_EQ(context->as_int(), 2 * kGiB);
  });
}

TEST(Worker, APlanThatIsTooShortIsNamedAndEndsTheStart) {
  Supervisor supervisor(1);
  for (PlanRow& row : supervisor.memory_plan().ranks[0].rows) {
    if (row.term == Term::workspace) row.bytes = 64;
  }
  ASSERT_NO_FATAL_FAILURE(supervisor.load());
  supervisor.expect_from_all<Fault>([](const std::string&, const Fault& fault) {
    EXPECT_EQ(fault.code, "internal");
    EXPECT_NE(fault.message.find("\"workspace\" has 64 bytes"), std::string::npos) << fault.message;
  });
  EXPECT_EQ(supervisor.exit_codes(), std::vector<int>{1});
}

TEST(Worker, NamesAFileThatItCannotLoad) {
  Supervisor supervisor(1);
  supervisor.options().values.model = "/nowhere/model.gguf";
  ASSERT_NO_FATAL_FAILURE(supervisor.load());
  supervisor.expect_from_all<Fault>([](const std::string&, const Fault& fault) {
    EXPECT_EQ(fault.code, "not_found");
    EXPECT_NE(fault.message.find("/nowhere/model.gguf"), std::string::npos) << fault.message;
  });
  EXPECT_EQ(supervisor.exit_codes(), std::vector<int>{78});
}

}  // namespace
}  // namespace plimsoll
