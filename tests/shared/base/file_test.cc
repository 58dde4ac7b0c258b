#include "shared/base/file.h"

#include <cstdlib>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

class File : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "plimsoll-file-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

TEST_F(File, WhatIsWrittenIsReadBackAndMapped) {
  const auto path = folder_ / "a";
  ASSERT_TRUE(write_file(path, "first"));
  ASSERT_TRUE(write_file(path, "second"));
  EXPECT_EQ(*read_file(path, 100), "second");
  const Result<MappedFile> mapped = MappedFile::open(path);
  ASSERT_TRUE(mapped);
  EXPECT_EQ(mapped->bytes().size(), 6u);
  EXPECT_EQ(static_cast<char>(mapped->bytes()[0]), 's');
  mapped->drop(0, 6);  // fewer bytes than a page: nothing to drop, nothing broken
  EXPECT_EQ(static_cast<char>(mapped->bytes()[5]), 'd');
}

TEST_F(File, WritingLeavesNoTemporaryFile) {
  ASSERT_TRUE(write_file(folder_ / "a", "x"));
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_)) ++files;
  EXPECT_EQ(files, 1);
}

TEST_F(File, AMissingFileIsNamedInItsError) {
  const Result<MappedFile> missing = MappedFile::open(folder_ / "none");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::not_found);
  EXPECT_NE(missing.error().message.find("none"), std::string::npos);
}

TEST_F(File, AFolderIsNotAFile) {
  EXPECT_EQ(MappedFile::open(folder_).error().code, Code::invalid);
}

TEST_F(File, ReadingStopsAtTheLimit) {
  ASSERT_TRUE(write_file(folder_ / "a", std::string(100, 'x')));
  EXPECT_EQ(read_file(folder_ / "a", 99).error().code, Code::invalid);
  EXPECT_TRUE(read_file(folder_ / "a", 100));
}

TEST_F(File, AnEmptyFileMapsToNothing) {
  ASSERT_TRUE(write_file(folder_ / "a", ""));
  EXPECT_TRUE(MappedFile::open(folder_ / "a")->bytes().empty());
}

}  // namespace
}  // namespace plimsoll
