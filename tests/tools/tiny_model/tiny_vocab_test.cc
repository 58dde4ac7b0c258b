#include "tools/tiny_model/tiny_vocab.h"

#include <map>
#include <set>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

template <typename T>
T value_of(const std::string& key) {
  for (const auto& [name, value] : tiny_vocab()) {
    if (name == key) return std::get<T>(value);
  }
  ADD_FAILURE() << key << " is missing";
  return {};
}

TEST(TinyVocab, HasATokenForEveryByteAndEveryMerge) {
  const auto tokens = value_of<std::vector<std::string>>("tokenizer.ggml.tokens");
  const auto merges = value_of<std::vector<std::string>>("tokenizer.ggml.merges");
  const auto types = value_of<std::vector<std::int64_t>>("tokenizer.ggml.token_type");
  EXPECT_EQ(tokens.size(), 3 + 256 + merges.size());
  EXPECT_EQ(types.size(), tokens.size());
  const std::set<std::string> known(tokens.begin(), tokens.end());
  EXPECT_EQ(known.size(), tokens.size());
  for (const std::string& merge : merges) {
    const std::size_t space = merge.find(' ');
    ASSERT_NE(space, std::string::npos) << merge;
    EXPECT_TRUE(known.contains(merge.substr(0, space))) << merge;
    EXPECT_TRUE(known.contains(merge.substr(space + 1))) << merge;
    EXPECT_TRUE(known.contains(merge.substr(0, space) + merge.substr(space + 1))) << merge;
  }
}

TEST(TinyVocab, ByteTokensFollowTheByteLevelMap) {
  const auto tokens = value_of<std::vector<std::string>>("tokenizer.ggml.tokens");
  EXPECT_EQ(tokens[3 + 'A'], "A");
  EXPECT_EQ(tokens[3 + ' '], "\u0120");
  EXPECT_EQ(tokens[3 + '\n'], "\u010a");
  EXPECT_EQ(tokens[3 + 0xff], "\u00ff");
  EXPECT_EQ(tokens[3 + 0xad], "\u0143");
}

}  // namespace
}  // namespace plimsoll
