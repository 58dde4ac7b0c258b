#include "daemon/model_identity.h"

#include <chrono>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"

namespace plimsoll {
namespace {

void write(const std::filesystem::path& path, const std::string& content) {
  std::ofstream(path) << content;
  // Two writes within one tick of the kernel's clock have the same time.
  const auto time = std::filesystem::last_write_time(path);
  std::filesystem::last_write_time(path, time + std::chrono::seconds(content.size()));
}

TEST(ModelIdentity, AFileIsTheSameUntilItIsWrittenOrReplaced) {
  const TempFolder folder;
  const std::filesystem::path file = folder.path() / "a model.gguf";
  write(file, "weights");
  const ModelIdentity planned = model_identity(file);
  EXPECT_TRUE(check_model_identity(file, planned));
  std::filesystem::permissions(file, std::filesystem::perms::owner_read);
  EXPECT_TRUE(check_model_identity(file, planned)) << "nobody changed its content";
  std::filesystem::permissions(file, std::filesystem::perms::owner_all);

  write(file, "other weights");
  const Status changed = check_model_identity(file, planned);
  ASSERT_FALSE(changed);
  EXPECT_EQ(changed.error().code, Code::invalid);
  EXPECT_NE(changed.error().message.find("a model.gguf has been"), std::string::npos)
      << changed.error().message;
  EXPECT_NE(changed.error().message.find("plimsoll restart"), std::string::npos);

  std::filesystem::remove(file);
  EXPECT_FALSE(check_model_identity(file, planned));
}

TEST(ModelIdentity, AFileOfTheSameSizeAndTimeInItsPlaceIsAnother) {
  const TempFolder folder;
  const std::filesystem::path file = folder.path() / "m.gguf";
  const std::filesystem::path next = folder.path() / "next";
  write(file, "weights");
  write(next, "WEIGHTS");
  std::filesystem::last_write_time(next, std::filesystem::last_write_time(file));
  const ModelIdentity planned = model_identity(file);
  std::filesystem::rename(next, file);
  EXPECT_FALSE(check_model_identity(file, planned));
}

TEST(ModelIdentity, TheSameContentIsTheSameModelWheneverItWasWritten) {
  const TempFolder folder;
  const std::filesystem::path file = folder.path() / "m.gguf";
  write(file, "weights");
  const ModelIdentity planned = model_identity(file);
  std::filesystem::last_write_time(
      file, std::filesystem::last_write_time(file) + std::chrono::seconds(60));
  EXPECT_TRUE(check_model_identity(file, planned)) << "touched";
  const std::filesystem::path copy = folder.path() / "copy";
  std::filesystem::copy_file(file, copy);
  std::filesystem::rename(copy, file);
  EXPECT_TRUE(check_model_identity(file, planned)) << "replaced by a copy";
  EXPECT_TRUE(is_same_model(planned, model_identity(file)));

  const auto time = std::filesystem::last_write_time(file);
  std::ofstream(file) << "WEIGHTS";
  std::filesystem::last_write_time(file, time + std::chrono::seconds(1));
  EXPECT_FALSE(check_model_identity(file, planned)) << "of the same size, in place";
  EXPECT_FALSE(is_same_model(planned, model_identity(file)));
}

TEST(ModelIdentity, OfAFolderTheFilesOfTheModelCount) {
  const TempFolder folder;
  write(folder.path() / "config.json", "{}");
  write(folder.path() / "model-1.safetensors", "1");
  const ModelIdentity planned = model_identity(folder.path());
  write(folder.path() / "README.md", "words");
  EXPECT_TRUE(check_model_identity(folder.path(), planned));
  write(folder.path() / "model-2.safetensors", "2");
  const Status added = check_model_identity(folder.path(), planned);
  ASSERT_FALSE(added);
  EXPECT_NE(added.error().message.find("model-2.safetensors"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
