#include "worker/leader.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "shared/base/log.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"
#include "tests/worker/rank_group.h"
#include "worker/follower.h"

namespace plimsoll {
namespace {

constexpr Duration kDeadline = seconds(50);

// Everything that came back for one request.
struct Answer {
  std::vector<std::int64_t> tokens;
  std::vector<double> logprobs;  // of tokens, then of their alternatives
  std::vector<double> prompt_logprobs;
  std::string finish;
  std::string error_code;
  std::string error;
  bool operator==(const Answer&) const = default;
};

// A leader on a tiny model, followers as threads, and a router's end of its socket.
class Replica {
 public:
  struct Options {
    int ranks = 1;
    std::optional<Tokens> chunk = 64;
    Blocks kv_blocks = 64;
    std::int64_t decode_steps_max = 1;
    Duration step_time_max = milliseconds(250);
  };
  explicit Replica(const Options& options) : options_(options) { start(); }
  ~Replica() {
    if (!leader) return;
    leader->abandon_all(unavailable("the test is over"));
    EXPECT_TRUE(leader->stop());
    for (std::thread& follower : followers_) follower.join();
  }

  void send(const Message& message) { ASSERT_TRUE(router->send(message)); }

  // Runs the leader until these requests have ended.
  std::map<std::uint64_t, Answer> finish(std::size_t requests) {
    std::map<std::uint64_t, Answer> answers;
    std::size_t ended = 0;
    const TimePoint deadline = now() + kDeadline;
    while (ended < requests) {
      if (now() >= deadline) {
        ADD_FAILURE() << ended << " of " << requests << " requests ended";
        return answers;
      }
      turn();
      while (const auto received = router->receive(milliseconds(leader->idle() ? 1 : 0))) {
        const auto* step = std::get_if<StepTokens>(&received->message);
        if (step == nullptr) continue;
        ++messages;
        for (const TokenEvent& event : step->events) {
          add(event, answers[event.id]);
          ended += event.finish.empty() ? 0 : 1;
        }
      }
    }
    return answers;
  }

  void turn() {
    leader->take_requests();
    if (leader->idle()) return;
    const Status step = leader->step();
    ASSERT_TRUE(step) << step.error().message;
  }

  std::string endpoint() const { return "ipc://" + (folder_.path() / "requests").string(); }

  std::unique_ptr<Leader> leader;
  std::optional<Channel> router;
  std::vector<std::int64_t> told_cached;  // in events, in order
  int messages = 0;                       // with what steps produced

 private:
  void add(const TokenEvent& event, Answer& answer) {
    answer.tokens.insert(answer.tokens.end(), event.tokens.begin(), event.tokens.end());
    for (const TokenLogprob& token : event.logprobs) {
      answer.logprobs.push_back(token.logprob);
      for (const double logprob : token.top_logprobs) answer.logprobs.push_back(logprob);
    }
    for (const TokenLogprob& token : event.prompt_logprobs) {
      answer.prompt_logprobs.push_back(token.logprob);
    }
    if (event.cached_tokens >= 0) told_cached.push_back(event.cached_tokens);
    if (event.finish.empty()) return;
    answer.finish = event.finish;
    answer.error_code = event.error_code;
    answer.error = event.error;
  }

  void start() {
    const auto model = write_tiny_model({.type = DType::q4_1}, folder_.path());
    ASSERT_TRUE(model) << model.error().message;
    group_ = std::make_unique<RankGroup>(
        RankGroup::Options{.model = *model,
                           .ranks = options_.ranks,
                           .limits = {.rows_max = 64, .logit_rows_max = 20, .context_length = 256},
                           .kv_blocks = options_.kv_blocks,
                           .sequences_max = 16});
    ASSERT_FALSE(testing::Test::HasFatalFailure());
    if (options_.ranks > 1) publisher_.emplace(group_->segment(), StepPublisher::Options{});
    for (int rank = 1; rank < options_.ranks; ++rank) {
      followers_.emplace_back([this, rank] { follow(rank); });
    }
    auto requests = Channel::bind(endpoint(), 0600);
    ASSERT_TRUE(requests) << requests.error().message;
    auto connected = Channel::connect(endpoint());
    ASSERT_TRUE(connected) << connected.error().message;
    router.emplace(std::move(*connected));
    Rank& rank = group_->rank(0);
    leader =
        std::make_unique<Leader>(Leader::Parts{.engine = &rank.engine(),
                                               .collective = &rank.collective(),
                                               .publisher = publisher_ ? &*publisher_ : nullptr,
                                               .requests = std::move(*requests),
                                               .limits = {.step = rank.engine().step_limits(),
                                                          .context_length = 256,
                                                          .vocab = rank.spec().vocab,
                                                          .waiting_max = 100},
                                               .budget = {.chunk_max = options_.chunk,
                                                          .rows_max = 64,
                                                          .step_time_max = options_.step_time_max},
                                               .decode_steps_max = options_.decode_steps_max});
    const Status warm = leader->warm_up();
    ASSERT_TRUE(warm) << warm.error().message;
  }

  void follow(int rank) {
    StepReceiver::Options options;
    options.rank = rank;
    StepReceiver receiver(group_->segment(), options);
    Follower follower({.engine = &group_->rank(rank).engine(),
                       .collective = &group_->rank(rank).collective(),
                       .receiver = &receiver,
                       .limits = group_->rank(rank).engine().step_limits()});
    while (true) {
      const auto followed = follower.follow(milliseconds(50));
      ASSERT_TRUE(followed) << followed.error().message;
      if (*followed == Followed::stop) return;
    }
  }

  Options options_;
  TempFolder folder_;
  std::unique_ptr<RankGroup> group_;
  std::optional<StepPublisher> publisher_;
  std::vector<std::thread> followers_;
};

Generate request(std::uint64_t id) {
  std::mt19937 random(static_cast<std::uint32_t>(id));
  Generate generate;
  generate.id = id;
  generate.prompt.resize(1 + random() % 60);
  for (std::int64_t& token : generate.prompt) token = random() % 256;
  Sampling& sampling = generate.sampling;
  sampling.max_tokens = static_cast<std::int64_t>(1 + random() % 90);
  sampling.temperature = id % 3 == 0 ? 0 : 0.9;
  sampling.top_p = id % 2 == 0 ? 0.9 : 1;
  sampling.top_k = id % 5 == 0 ? 30 : 0;
  sampling.frequency_penalty = id % 4 == 0 ? 0.5 : 0;
  sampling.seed = 1000 + id;
  sampling.logprobs = 3;
  sampling.prompt_logprobs = id % 4 == 1;
  return generate;
}

TEST(Leader, SixteenTogetherGetTheTokensAndBitsThatEachGetsAlone) {
  constexpr std::uint64_t kRequests = 16;
  for (const int ranks : {1, 2}) {
    std::map<std::uint64_t, Answer> alone;
    {
      Replica replica({.ranks = ranks});
      ASSERT_FALSE(HasFatalFailure());
      for (std::uint64_t id = 1; id <= kRequests; ++id) {
        replica.send(request(id));
        alone.merge(replica.finish(1));
      }
    }
    for (const auto& [chunk, decode_steps] : {std::pair{1, 1}, {5, 3}, {33, 1}, {64, 8}}) {
      // 8 blocks are too few for all: some are preempted and computed again.
      for (const Blocks blocks : {64, 8}) {
        SCOPED_TRACE(testing::Message() << ranks << " ranks, chunks of " << chunk << ", " << blocks
                                        << " blocks, " << decode_steps << " decode steps in a row");
        Replica replica({.ranks = ranks,
                         .chunk = chunk,
                         .kv_blocks = blocks,
                         .decode_steps_max = decode_steps});
        for (std::uint64_t id = 1; id <= kRequests; ++id) replica.send(request(id));
        const auto together = replica.finish(kRequests);
        ASSERT_EQ(together.size(), kRequests);
        for (const auto& [id, answer] : together) EXPECT_TRUE(answer == alone[id]) << id;
        EXPECT_EQ(replica.leader->scheduler().preemptions() > 0, blocks == 8);
      }
    }
  }
}

TEST(Leader, AnAnswerOnKeptBlocksHasTheBitsOfOneComputedFromItsFirstToken) {
  constexpr std::uint64_t kRequests = 4;
  const auto beginning_alike = [](std::uint64_t id) {
    Generate generate = request(id);
    generate.prompt.insert(generate.prompt.begin(), 70, 7);
    generate.sampling.max_tokens = 40;
    generate.sampling.prompt_logprobs = false;
    return generate;
  };
  for (const int ranks : {1, 2}) {
    Replica warm({.ranks = ranks});
    for (std::uint64_t id = 1; id <= kRequests; ++id) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, request " << id);
      Replica cold({.ranks = ranks});
      ASSERT_FALSE(HasFatalFailure());
      cold.send(beginning_alike(id));
      warm.send(beginning_alike(id));
      EXPECT_TRUE(warm.finish(1)[id] == cold.finish(1)[id]);
      EXPECT_EQ(warm.leader->counters().cached_tokens, static_cast<Tokens>(64 * (id - 1)));
      ASSERT_EQ(warm.told_cached.size(), id);  // once a request
      EXPECT_EQ(warm.told_cached.back(), id == 1 ? 0 : 64);
      EXPECT_EQ(cold.leader->counters().cached_tokens, 0);
      EXPECT_EQ(cold.told_cached, std::vector<std::int64_t>{0});
    }
  }
}

TEST(Leader, AContinuationGetsTheTokensAndBitsThatWouldHaveFollowed) {
  constexpr std::uint64_t kRequests = 16;
  for (const int ranks : {1, 2}) {
    SCOPED_TRACE(testing::Message() << ranks << " ranks");
    Replica replica({.ranks = ranks});
    ASSERT_FALSE(HasFatalFailure());
    std::map<std::uint64_t, Answer> whole;
    for (std::uint64_t id = 1; id <= kRequests; ++id) replica.send(request(id));
    whole.merge(replica.finish(kRequests));
    // Cut anywhere, and all continued together, beside others than before.
    std::map<std::uint64_t, std::size_t> cut;
    for (std::uint64_t id = 1; id <= kRequests; ++id) {
      Generate rest = request(id);
      const auto& tokens = whole[id].tokens;
      cut[id] = (id * 7) % tokens.size();
      rest.emitted.assign(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(cut[id]));
      rest.id = 100 + id;
      if (cut[id] > 0) rest.prompt_reported = std::ssize(whole[id].prompt_logprobs);
      replica.send(rest);
    }
    auto continued = replica.finish(kRequests);
    for (std::uint64_t id = 1; id <= kRequests; ++id) {
      SCOPED_TRACE(testing::Message() << "request " << id << " after " << cut[id] << " tokens");
      const Answer& before = whole[id];
      const Answer& after = continued[100 + id];
      const auto at = static_cast<std::ptrdiff_t>(cut[id]);
      EXPECT_EQ(after.tokens,
                std::vector<std::int64_t>(before.tokens.begin() + at, before.tokens.end()));
      EXPECT_EQ(after.logprobs,
                std::vector<double>(before.logprobs.begin() + 4 * at, before.logprobs.end()));
      EXPECT_EQ(after.prompt_logprobs, at == 0 ? before.prompt_logprobs : std::vector<double>());
      EXPECT_EQ(after.finish, before.finish);
    }
  }
}

TEST(Leader, PromptLogprobsGoOnWhereTheyWere) {
  Replica replica({});
  Generate asked = request(1);
  asked.prompt.assign(40, 7);
  asked.sampling.max_tokens = 1;
  replica.send(asked);
  const Answer whole = replica.finish(1)[1];
  asked.id = 2;
  asked.prompt_reported = 15;
  replica.send(asked);
  const Answer rest = replica.finish(1)[2];
  EXPECT_EQ(rest.prompt_logprobs,
            std::vector<double>(whole.prompt_logprobs.begin() + 15, whole.prompt_logprobs.end()));
  EXPECT_EQ(rest.tokens, whole.tokens);
}

TEST(Leader, AContinuationWithNothingLeftToDoEndsAtOnce) {
  Replica replica({});
  Generate done = request(3);
  done.sampling.max_tokens = 2;
  done.emitted = {5, 6};
  replica.send(done);
  const Answer answer = replica.finish(1)[3];
  EXPECT_EQ(answer.finish, "length");
  EXPECT_TRUE(answer.tokens.empty());
}

TEST(Leader, AnswersHaveWhatWasAskedFor) {
  Replica replica({});
  const Generate asked = request(1);  // with log-probabilities of the prompt
  replica.send(asked);
  const Answer answer = replica.finish(1)[1];
  EXPECT_EQ(answer.finish, "length");
  EXPECT_EQ(std::ssize(answer.tokens), asked.sampling.max_tokens);
  EXPECT_EQ(answer.logprobs.size(), answer.tokens.size() * 4);
  EXPECT_EQ(answer.prompt_logprobs.size(), asked.prompt.size() - 1);
  EXPECT_EQ(replica.leader->counters().prompt_tokens, std::ssize(asked.prompt));
  EXPECT_EQ(replica.leader->counters().generated_tokens, asked.sampling.max_tokens);
}

TEST(Leader, WithoutTokensToGenerateThePromptIsStillScored) {
  Replica replica({});
  Generate scored = request(1);
  scored.sampling.max_tokens = 0;
  replica.send(scored);
  const Answer answer = replica.finish(1)[1];
  EXPECT_EQ(answer.finish, "length");
  EXPECT_TRUE(answer.tokens.empty());
  EXPECT_EQ(answer.prompt_logprobs.size(), scored.prompt.size() - 1);
  scored.id = 2;
  scored.sampling.prompt_logprobs = false;
  replica.send(scored);
  EXPECT_EQ(replica.finish(1)[2].finish, "length");
}

TEST(Leader, StopsAtAStopIdWhereverItIsInARow) {
  Replica replica({.decode_steps_max = 8});
  Generate first = request(3);
  first.sampling.max_tokens = 20;
  replica.send(first);
  const Answer whole = replica.finish(1)[3];
  Generate second = first;
  second.id = 4;
  second.sampling.stop_ids = {whole.tokens[5]};
  replica.send(second);
  const Answer stopped = replica.finish(1)[4];
  EXPECT_EQ(stopped.finish, "stop");
  const auto at = std::ranges::find(whole.tokens, whole.tokens[5]);
  EXPECT_EQ(stopped.tokens, std::vector<std::int64_t>(whole.tokens.begin(), at + 1));
}

TEST(Leader, DecodeStepsInARowAreOneMessageButTheFirstTokenComesAtOnce) {
  Generate asked = request(3);
  asked.prompt.resize(1);
  asked.sampling.max_tokens = 1 + 8 + 3;
  Replica in_rows({.decode_steps_max = 8, .step_time_max = seconds(60)});
  in_rows.send(asked);
  EXPECT_EQ(in_rows.finish(1)[3].tokens.size(), 12U);
  EXPECT_EQ(in_rows.messages, 3);
  EXPECT_EQ(in_rows.leader->counters().steps, 12);
  Replica out_of_time({.decode_steps_max = 8, .step_time_max = Duration(1)});
  out_of_time.send(asked);
  EXPECT_EQ(out_of_time.finish(1)[3].tokens.size(), 12U);
  EXPECT_EQ(out_of_time.messages, 12);
}

TEST(Leader, CancellingEndsARequestAndFreesItsBlocks) {
  Replica replica({});
  Generate endless = request(3);
  endless.sampling.max_tokens = 150;
  replica.send(endless);
  const TimePoint deadline = now() + kDeadline;
  while (replica.leader->counters().generated_tokens < 3 && now() < deadline) replica.turn();
  replica.send(Cancel{3});
  // Without further steps: however late the message comes, the answer has not ended by then.
  while (!replica.leader->idle() && now() < deadline) replica.leader->take_requests();
  EXPECT_EQ(replica.finish(1)[3].finish, "cancelled");
  EXPECT_EQ(replica.leader->scheduler().blocks_used(), 0);
  replica.send(Cancel{3});  // too late: nothing happens
  replica.turn();
  EXPECT_TRUE(replica.leader->idle());
}

TEST(Leader, RefusesWhatCannotRunWithTheReason) {
  Replica replica({});
  Generate bad = request(1);
  bad.prompt[0] = 100'000;
  replica.send(bad);
  Generate worse = request(2);
  worse.sampling.temperature = -1;
  replica.send(worse);
  auto answers = replica.finish(2);
  EXPECT_EQ(answers[1].finish, "error");
  EXPECT_EQ(answers[1].error_code, "invalid");
  EXPECT_NE(answers[1].error.find("token 100000"), std::string::npos) << answers[1].error;
  EXPECT_NE(answers[2].error.find("temperature"), std::string::npos) << answers[2].error;
}

TEST(Leader, AFloodOfMessagesThatDoNotBelongHereIsLoggedOnceAndTakenInTurns) {
  constexpr int kFlood = 5000;
  Replica replica({});
  ::testing::internal::CaptureStderr();
  log_start("worker", LogLevel::info);
  for (int i = 0; i < kFlood; ++i) replica.send(Ping{i});
  replica.send(request(1));
  int turns = 0;
  const TimePoint deadline = now() + kDeadline;
  while (replica.leader->idle() && now() < deadline) {
    if (replica.leader->take_requests()) ++turns;
  }
  EXPECT_GE(turns, kFlood / 300) << "a step could have run between them";
  EXPECT_EQ(replica.finish(1)[1].finish, "length");
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::ranges::count(log, '\n'), 1) << log;
  EXPECT_NE(log.find("'ping'"), std::string::npos) << log;
}

TEST(Leader, AFloodThatNeverEndsKeepsNoAnswerBack) {
  Replica replica({});
  std::atomic<bool> is_over = false;
  std::vector<std::thread> flooders;
  for (int i = 0; i < 2; ++i) {
    flooders.emplace_back([&] {
      auto channel = Channel::connect(replica.endpoint());
      while (channel && !is_over) (void)channel->send(Ping{1});  // a full queue is what is wanted
    });
  }
  replica.send(request(1));
  EXPECT_EQ(replica.finish(1)[1].finish, "length");
  is_over = true;
  for (std::thread& flooder : flooders) flooder.join();
}

TEST(Leader, DrainingFinishesWhatRunsAndRefusesTheRest) {
  Replica replica({});
  replica.send(request(1));
  const TimePoint deadline = now() + kDeadline;
  while (replica.leader->idle() && now() < deadline) replica.leader->take_requests();
  replica.leader->refuse_new("this replica is about to end");
  replica.send(request(2));
  auto answers = replica.finish(2);
  EXPECT_EQ(answers[1].finish, "length");
  EXPECT_EQ(answers[2].finish, "error");
  EXPECT_EQ(answers[2].error_code, "unavailable");
}

TEST(Leader, AbandonedRequestsGetAnErrorEach) {
  Replica replica({});
  replica.send(request(1));
  replica.send(request(2));
  const TimePoint deadline = now() + kDeadline;
  while (replica.leader->scheduler().waiting() < 2 && now() < deadline) {
    replica.leader->take_requests();
  }
  replica.leader->abandon_all(timed_out("its time is up"));
  auto answers = replica.finish(2);
  EXPECT_EQ(answers[1].error_code, "timed_out");
  EXPECT_EQ(answers[2].error, "its time is up");
  EXPECT_TRUE(replica.leader->idle());
}

TEST(Leader, ARouterThatIsGoneTakesItsRequestsAlong) {
  Replica replica({});
  Generate endless = request(3);
  endless.sampling.max_tokens = 150;
  replica.send(endless);
  const TimePoint deadline = now() + kDeadline;
  while (replica.leader->idle() && now() < deadline) replica.leader->take_requests();
  replica.router.reset();
  while (!replica.leader->idle() && now() < deadline) replica.turn();
  EXPECT_LT(replica.leader->counters().generated_tokens, 150);
  EXPECT_EQ(replica.leader->scheduler().blocks_used(), 0);
}

}  // namespace
}  // namespace plimsoll
