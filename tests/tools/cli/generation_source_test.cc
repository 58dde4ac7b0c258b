#include "tools/cli/generation_source.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(GenerationSource, ANumberNamesAGenerationAndNothingElseDoes) {
  Generations all;
  for (const std::int64_t number : {3, 5, 9}) {
    GenerationRecord record;
    record.number = number;
    all.records.push_back(std::move(record));
  }
  ASSERT_TRUE(named_generation(all, "5"));
  EXPECT_EQ((*named_generation(all, "5"))->number, 5);
  for (const char* word : {"", "five", "5x", "-"}) {
    const Result<const GenerationRecord*> found = named_generation(all, word);
    ASSERT_FALSE(found) << word;
    EXPECT_EQ(found.error().code, Code::invalid) << word;
  }
  const Result<const GenerationRecord*> absent = named_generation(all, "4");
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, Code::not_found);
  EXPECT_NE(absent.error().message.find("3 to 9"), std::string::npos) << absent.error().message;
}

}  // namespace
}  // namespace plimsoll
