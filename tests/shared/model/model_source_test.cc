#include "shared/model/model_source.h"

#include <gtest/gtest.h>

#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

TEST(ModelSource, ReadsAGgufFile) {
  SKIP_WITHOUT(default_model_path());
  const auto model = read_model(default_model_path());
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->layers, 30);
  EXPECT_EQ(model->weight_source, WeightSource::headers);
  EXPECT_EQ(model->weight_bytes(), model->weights.bytes());
}

TEST(ModelSource, NamesAFileThatIsNotThere) {
  const auto model = read_model("/nowhere/model.gguf");
  ASSERT_FALSE(model);
  EXPECT_NE(model.error().message.find("/nowhere/model.gguf"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
