#include "router/setup.h"

#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/base/json.h"
#include "shared/options/option_set.h"
#include "tests/router/tiny_context.h"
#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

class SetupTest : public ::testing::Test {
 protected:
  RouterSetup setup(Options options = {}) {
    return {option_set_to_json({std::move(options), {}}), model_.string(), "", 64};
  }
  FakeRoot folder_{"router_setup_" + std::to_string(::getpid())};
  std::filesystem::path model_ = write_router_model(folder_);
};

TEST_F(SetupTest, TakesTheTokenizerAndTheTemplateFromTheModel) {
  const auto plan = plan_router(setup());
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_TRUE(plan->model.chat_template) << plan->template_error;
  EXPECT_GT(plan->model.tokenizer.vocab_size(), 256);
  EXPECT_EQ(plan->model.name, "tiny");
  EXPECT_EQ(plan->model.limits.context_length, 64);
}

TEST_F(SetupTest, TheServedNameIsTheOneOfTheOptions) {
  RouterSetup named = setup();
  named.served_model_name = "ship";
  const auto plan = plan_router(named);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->model.name, "ship");
  EXPECT_EQ(plan->model.stem, "tiny");
}

TEST_F(SetupTest, LimitsComeFromTheOptions) {
  Options options;
  options.max_queued_requests = 7;
  options.max_running_requests = 3;
  options.hold_deadline = milliseconds(250);
  const auto plan = plan_router(setup(options));
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->service.limits.queued_max, 7);
  EXPECT_EQ(plan->service.limits.running_max, 3);
  EXPECT_EQ(plan->service.limits.hold_max, milliseconds(250));
}

TEST_F(SetupTest, AModelThatIsOnlyDescribedCanBeRehearsedWithATokenAByte) {
  const Json golden = *parse_json(read_test_file(golden_path("models/qwen3-0.6b.json")));
  const std::filesystem::path config = folder_.path() / "config.json";
  ASSERT_TRUE(write_file(config, dump_json(*golden.find("config"))));
  Options options;
  options.devices = "simulated:94GiB";
  RouterSetup described = setup(options);
  described.model_path = config.string();
  const auto plan = plan_router(described);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->model.tokenizer.vocab_size(), 151'936);
  EXPECT_FALSE(plan->model.chat_template);
  EXPECT_NE(plan->template_error.find("a token is a byte"), std::string::npos);
  described.options = option_set_to_json({Options{}, {}});
  EXPECT_FALSE(plan_router(described)) << "what is served needs its own tokenizer";
}

TEST_F(SetupTest, WhatCannotBeUsedIsRefused) {
  RouterSetup missing = setup();
  missing.model_path = (folder_.path() / "none.gguf").string();
  EXPECT_FALSE(plan_router(missing));
  RouterSetup zero = setup();
  zero.context_length = 0;
  EXPECT_FALSE(plan_router(zero));
  RouterSetup wrong = setup();
  wrong.options = "no options";
  EXPECT_FALSE(plan_router(wrong));
}

}  // namespace
}  // namespace plimsoll
