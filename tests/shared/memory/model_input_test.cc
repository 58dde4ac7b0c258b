#include "shared/memory/model_input.h"

#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace plimsoll {
namespace {

TEST(ModelInput, ReadsTheModelAndItsDraftForDevices) {
  TempFolder folder;
  const auto file = write_tiny_model({}, folder.path());
  ASSERT_TRUE(file);
  Options options;
  options.model = file->string();
  options.draft_model = file->string();
  Machine machine;
  const auto on_cpu = read_plan_models(options, machine);
  ASSERT_TRUE(on_cpu) << on_cpu.error().message;
  EXPECT_EQ(on_cpu->draft_or_null(), nullptr);
  machine.devices.resize(1);
  const auto on_devices = read_plan_models(options, machine);
  ASSERT_TRUE(on_devices) << on_devices.error().message;
  ASSERT_NE(on_devices->draft_or_null(), nullptr);
  EXPECT_EQ(on_devices->draft_or_null()->layers, on_devices->model.layers);
}

TEST(ModelInput, AModelWhoseTokenizerCannotBeBuiltIsRefused) {
  const TempFolder folder;
  std::string bytes = make_tiny_model({}).value();
  const std::size_t merge = bytes.find("e r", bytes.find("tokenizer.ggml.merges"));
  ASSERT_NE(merge, std::string::npos);
  bytes[merge] = '#';
  const std::filesystem::path file = folder.path() / "broken.gguf";
  ASSERT_TRUE(write_file(file, bytes));
  Options options;
  options.model = file.string();
  const auto models = read_plan_models(options, {});
  ASSERT_FALSE(models);
  EXPECT_NE(models.error().message.find("makes no token"), std::string::npos)
      << models.error().message;
}

TEST(ModelInput, SaysWhichFileIsMissing) {
  const auto unnamed = read_plan_models({}, {});
  ASSERT_FALSE(unnamed);
  EXPECT_EQ(unnamed.error().message, "model: no file is named; give the path of one");
  Options options;
  options.model = "/no/such/model.gguf";
  const auto models = read_plan_models(options, {});
  ASSERT_FALSE(models);
  EXPECT_NE(models.error().message.find("/no/such/model.gguf"), std::string::npos);
}

TEST(ModelInput, ANameOfAHubIsNoPath) {
  Options options;
  options.model = "meta-llama/Llama-3.1-8B-Instruct";
  Machine machine;
  for (const int devices : {0, 1}) {
    machine.devices.resize(static_cast<std::size_t>(devices));
    const auto models = read_plan_models(options, machine);
    ASSERT_FALSE(models);
    EXPECT_EQ(models.error().code, Code::not_found);
    EXPECT_NE(models.error().message.find("config.json"), std::string::npos)
        << models.error().message;
  }
  options.model = "models/absent.gguf";
  EXPECT_EQ(read_plan_models(options, {}).error().message.find("by its name"), std::string::npos);
}

TEST(ModelInput, AFolderIsRefusedForCpuRanksWithWhatWouldWork) {
  const TempFolder folder;
  Options options;
  options.model = folder.path().string();
  const auto models = read_plan_models(options, {});
  ASSERT_FALSE(models);
  EXPECT_EQ(models.error().code, Code::invalid);
  EXPECT_NE(models.error().message.find("is a folder; CPU ranks load one GGUF file"),
            std::string::npos)
      << models.error().message;
}

}  // namespace
}  // namespace plimsoll
