#include "worker/rank.h"

#include <string>

#include <gtest/gtest.h>

#include "shared/machine/machine.h"
#include "tests/support/temp_folder.h"
#include "tests/support/test_data.h"
#include "tests/support/tiny_model.h"
#include "tests/worker/rank_group.h"

namespace plimsoll {
namespace {

Machine big_machine() {
  Machine machine;
  machine.cpus = {0, 1, 2, 3, 4, 5, 6, 7};
  machine.nodes = {{.id = 0, .cpus = machine.cpus}};
  machine.memory_total = 64 * kGiB;
  machine.memory_available = 64 * kGiB;
  return machine;
}

// Every row that tensors come from is at least what the code asks for, and not twice as much.
void expect_rows_to_suffice(const std::filesystem::path& model, const OptionSet& options) {
  const auto file = GgufFile::open(model);
  ASSERT_TRUE(file) << file.error().message;
  const auto spec = read_model_spec(*file);
  ASSERT_TRUE(spec) << spec.error().message;
  const auto plan = plan_memory(big_machine(), *spec, options);
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_FALSE(plan->refusal) << plan->refusal->message;
  const DecoderLimits limits{.rows_max = plan->decisions.step_tokens_max,
                             .logit_rows_max = plan->decisions.logit_rows_max,
                             .context_length = plan->decisions.context_length};
  ShardPlan shards;
  for (const RankPlan& rank : plan->ranks) shards.ranks.push_back(rank.shard);
  for (const RankPlan& rank : plan->ranks) {
    for (const CpuPath path : {CpuPath::scalar, best_cpu_path()}) {
      CpuBackendOptions backend_options;
      backend_options.threads = static_cast<int>(rank.threads);
      backend_options.spin = false;
      backend_options.path = path;
      const auto backend = make_cpu_backend(backend_options);
      ASSERT_TRUE(backend) << backend.error().message;
      const RankPlan exact =
          exact_plan(*spec, shards, static_cast<int>(rank.rank), limits, **backend);
      for (const PlanRow& row : exact.rows) {
        EXPECT_GE(rank.bytes(row.term), row.bytes) << term_name(row.term);
        EXPECT_LE(rank.bytes(row.term), 2 * row.bytes + 64 * kKiB) << term_name(row.term);
      }
    }
  }
}

TEST(Rank, ThePlansRowsSufficeForTinyModels) {
  const TempFolder folder;
  const auto model = write_tiny_model({.type = DType::q4_1, .tied_head = false}, folder.path());
  ASSERT_TRUE(model) << model.error().message;
  for (const std::int64_t tp : {1, 2, 3}) {
    for (const std::int64_t threads : {1, 2}) {
      SCOPED_TRACE(testing::Message() << "tp " << tp << ", threads " << threads);
      OptionSet options;
      options.values.tp = tp;
      options.values.threads = threads;
      ASSERT_NO_FATAL_FAILURE(expect_rows_to_suffice(*model, options));
      options.values.chunked_prefill_size = 16;
      options.values.max_running_requests = 3;
      options.values.context_length = 100;
      ASSERT_NO_FATAL_FAILURE(expect_rows_to_suffice(*model, options));
    }
  }
}

TEST(Rank, ThePlansRowsSufficeForTheDefaultModel) {
  SKIP_IN_SANITIZER_BUILDS("they run tiny models");
  SKIP_WITHOUT(default_model_path());
  for (const std::int64_t tp : {1, 3}) {
    for (const std::int64_t threads : {1, 8}) {
      SCOPED_TRACE(testing::Message() << "tp " << tp << ", threads " << threads);
      OptionSet options;
      options.values.tp = tp;
      options.values.threads = threads;
      expect_rows_to_suffice(default_model_path(), options);
    }
  }
}

TEST(Rank, MeasuresWhatItTook) {
  const TempFolder folder;
  const auto model = write_tiny_model({}, folder.path());
  ASSERT_TRUE(model) << model.error().message;
  RankGroup group({.model = *model});
  ASSERT_FALSE(HasFatalFailure());
  const Measured measured = group.rank(0).measure();
  for (const Term term : {Term::weights, Term::tables, Term::activations, Term::workspace,
                          Term::logits, Term::process}) {
    ASSERT_TRUE(measured.terms.contains(term_name(term))) << term_name(term);
    EXPECT_GT(measured.terms.at(term_name(term)), 0) << term_name(term);
  }
  EXPECT_EQ(measured.terms.at("weights"), group.rank(0).arena().taken(Term::weights));
  EXPECT_EQ(measured.source, kPssSource);
  EXPECT_GT(measured.kv_committed, 0);
  EXPECT_EQ(measured.kv_touched, 0);
}

TEST(Rank, WeightsThatWereKeptGiveTheSameLogitsAndAreNotPackedAgain) {
  const TempFolder folder;
  const auto model = write_tiny_model({}, folder.path());
  ASSERT_TRUE(model) << model.error().message;
  const auto run = [&](int kept) {
    RankGroup group({.model = *model, .kept_weights = kept});
    StepPlan plan;
    const std::vector<std::int32_t> tokens = {1, 5, 7, 2, 9};
    append_rows(plan, {.tokens = tokens, .begin = 0, .end = 5, .first_block = 0, .logit_rows = 5});
    return group.run(plan);
  };
  const auto file = GgufFile::open(*model);
  ASSERT_TRUE(file);
  const auto spec = read_model_spec(*file);
  ASSERT_TRUE(spec);
  const auto shards = plan_shards(*spec, 1);
  ASSERT_TRUE(shards);
  const Bytes bytes = rank_weights(*spec, shards->ranks[0]).bytes();
  const auto block = SealedBlock::create("test", bytes);
  ASSERT_TRUE(block) << block.error().message;
  const auto expected = run(-1);
  EXPECT_EQ(run(block->get()), expected);  // packs into it
  if (!SealedBlock::label_of(block->get())) GTEST_SKIP() << "the kernel has no 2 MiB pages for it";
  EXPECT_EQ(run(block->get()), expected);  // maps it
}

TEST(Rank, WeightsThatAnotherPacksAreWaitedFor) {
  const TempFolder folder;
  const auto model = write_tiny_model({}, folder.path());
  ASSERT_TRUE(model) << model.error().message;
  const auto file = GgufFile::open(*model);
  ASSERT_TRUE(file);
  const auto spec = read_model_spec(*file);
  ASSERT_TRUE(spec);
  const auto shards = plan_shards(*spec, 1);
  ASSERT_TRUE(shards);
  RankPlan plan;
  plan.shard = shards->ranks[0];
  const Bytes bytes = rank_weights(*spec, plan.shard).bytes();
  plan.rows.push_back({.term = Term::weights, .bytes = bytes, .formula = {}});
  const auto block = SealedBlock::create("test", bytes);
  ASSERT_TRUE(block);
  auto other = SealedBlock::open(block->get(), bytes, "another's");
  if (!other) GTEST_SKIP() << other.error().message;
  int waits = 0;
  Rank::Setup setup{.model_path = model->string(),
                    .shards = *shards,
                    .plan = plan,
                    .limits = {},
                    .backend = nullptr,
                    .collective = make_single_collective(),
                    .kept_weights = Rank::KeptWeights{.block = UniqueFd(::dup(block->get())),
                                                      .wait = [&]() -> Status {
                                                        if (++waits < 3) return {};
                                                        return unavailable("told to end");
                                                      }}};
  const auto rank = Rank::load(std::move(setup), [](const LoadProgress&) {});
  ASSERT_FALSE(rank);
  EXPECT_EQ(rank.error().message, "told to end");
  EXPECT_EQ(waits, 3);
}

TEST(Rank, AFileThatIsNoModelIsNamed) {
  Rank::Setup setup{.model_path = "/nowhere/model.gguf",
                    .shards = {},
                    .plan = {},
                    .limits = {},
                    .backend = nullptr,
                    .collective = make_single_collective()};
  const auto rank = Rank::load(std::move(setup), [](const LoadProgress&) {});
  ASSERT_FALSE(rank);
  EXPECT_EQ(rank.error().code, Code::not_found);
  EXPECT_NE(rank.error().message.find("/nowhere/model.gguf"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
