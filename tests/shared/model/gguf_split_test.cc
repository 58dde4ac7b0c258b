#include "shared/model/gguf_split.h"

#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/model/model_source.h"
#include "tests/support/temp_folder.h"
#include "tools/tiny_model/gguf_writer.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kHidden = 256;

void add_weight(GgufWriter& writer, const std::string& name, DType type,
                std::vector<std::int64_t> shape) {
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) elements *= size;
  writer.add_weight(name, type, std::move(shape),
                    std::vector<std::byte>(static_cast<std::size_t>(stored_bytes(type, elements))));
}

void add_layer(GgufWriter& writer, int layer, DType type) {
  const std::string prefix = "blk." + std::to_string(layer) + ".";
  for (const char* name : {"attn_norm.weight", "ffn_norm.weight"}) {
    add_weight(writer, prefix + name, DType::f32, {kHidden});
  }
  for (const char* name : {"attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_output.weight",
                           "ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"}) {
    add_weight(writer, prefix + name, type, {kHidden, kHidden});
  }
}

void add_metadata(GgufWriter& writer) {
  writer.add("general.architecture", std::string("llama"));
  writer.add("llama.block_count", std::int64_t{2});
  writer.add("llama.embedding_length", kHidden);
  writer.add("llama.feed_forward_length", kHidden);
  writer.add("llama.context_length", std::int64_t{4096});
  writer.add("llama.attention.head_count", std::int64_t{4});
  writer.add("llama.attention.layer_norm_rms_epsilon", 1e-5);
}

// A model of three files in a folder.
class SplitModel {
 public:
  explicit SplitModel(DType type = DType::q8_0) {
    add_metadata(parts_[0]);
    add_weight(parts_[0], "token_embd.weight", type, {64, kHidden});
    add_layer(parts_[1], 0, type);
    add_layer(parts_[2], 1, type);
    add_weight(parts_[2], "output_norm.weight", DType::f32, {kHidden});
  }
  std::filesystem::path path(int number) const {
    return folder_.path() / ("m-0000" + std::to_string(number) + "-of-00003.gguf");
  }
  // The same weights as one file.
  static std::string whole(DType type) {
    GgufWriter writer;
    add_metadata(writer);
    add_weight(writer, "token_embd.weight", type, {64, kHidden});
    add_layer(writer, 0, type);
    add_layer(writer, 1, type);
    add_weight(writer, "output_norm.weight", DType::f32, {kHidden});
    return writer.file();
  }
  GgufWriter& part(int number) { return parts_[number - 1]; }
  void write(std::int64_t weights = 20) {
    for (int number = 1; number <= 3; ++number) {
      GgufWriter& writer = part(number);
      writer.add("split.no", std::int64_t{number - 1});
      writer.add("split.count", std::int64_t{3});
      writer.add("split.tensors.count", weights);
      ASSERT_TRUE(write_file(path(number), writer.file()));
    }
  }
  const std::filesystem::path& folder() const { return folder_.path(); }

 private:
  TempFolder folder_;
  GgufWriter parts_[3];
};

void expect_refused(const std::filesystem::path& path, std::string_view words) {
  const auto model = read_model(path);
  ASSERT_FALSE(model) << words;
  EXPECT_NE(model.error().message.find(words), std::string::npos) << model.error().message;
}

TEST(GgufSplit, APlanReadsTheHeadersOfAllParts) {
  SplitModel split;
  split.write();
  const auto model = read_model(split.path(1));
  ASSERT_TRUE(model) << model.error().message;
  const auto path = split.folder() / "whole.gguf";
  ASSERT_TRUE(write_file(path, SplitModel::whole(DType::q8_0)));
  const auto whole = read_model(path);
  ASSERT_TRUE(whole) << whole.error().message;
  EXPECT_EQ(model->weights.all().size(), 20U);
  EXPECT_EQ(model->weight_bytes(), whole->weight_bytes());
  EXPECT_EQ(model->file_type, "Q8_0");
  EXPECT_TRUE(whole->can_be_loaded()) << whole->not_loaded;
  EXPECT_FALSE(model->can_be_loaded());
  EXPECT_NE(model->not_loaded.find("this file is part 1 of 3: workers load one file, so merge"),
            std::string::npos)
      << model->not_loaded;
}

TEST(GgufSplit, ATypeThatDoesNotRunIsPlannedFor) {
  SplitModel split;
  const auto path = split.folder() / "iq2.gguf";
  ASSERT_TRUE(write_file(path, SplitModel::whole(static_cast<DType>(16))));
  const auto model = read_model(path);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->file_type, "IQ2_XXS");
  EXPECT_EQ(model->weight_bytes(), (64 * 256 + 14 * 256 * 256) / 256 * 66 + 5 * 256 * 4);
  EXPECT_NE(model->not_loaded.find("has the type IQ2_XXS, which cannot be run; what can be is F32"),
            std::string::npos)
      << model->not_loaded;
}

TEST(GgufSplit, NamesThePartThatIsMissingOddOrNotTheFirst) {
  SplitModel split;
  split.write();
  expect_refused(split.path(2), "the file is part 2 of 3; name the first, m-00001-of-00003.gguf");
  const auto renamed = split.folder() / "m.gguf";
  std::filesystem::copy_file(split.path(1), renamed);
  expect_refused(renamed, "its name does not end in -00001-of-00003.gguf");
  std::filesystem::rename(split.path(3), split.folder() / "kept");
  expect_refused(split.path(1), "m-00003-of-00003.gguf");
  std::filesystem::copy_file(split.path(2), split.path(3));
  expect_refused(split.path(1),
                 "m-00003-of-00003.gguf: it says that it is part 2 of 3; expected part 3 of 3");
  std::filesystem::remove(split.path(3));
  ASSERT_TRUE(write_file(split.path(3), SplitModel::whole(DType::q8_0)));
  expect_refused(split.path(1), "it says that it is a whole model; expected part 3 of 3");
}

TEST(GgufSplit, WeightsThatAreThereTwiceOrNotAtAllAreFound) {
  SplitModel twice;
  add_weight(twice.part(3), "token_embd.weight", DType::f32, {64, kHidden});
  twice.write();
  expect_refused(twice.path(1), "the weight token_embd.weight is in an earlier part too");
  SplitModel fewer;
  fewer.write(21);
  expect_refused(fewer.path(1), "the 3 parts hold 20 weights together; the first says 21");
}

TEST(GgufSplit, NumbersThatNoPartHasAreRefused) {
  for (const auto& [index, count] : {std::pair<std::int64_t, std::int64_t>{3, 3}, {0, 5000}}) {
    GgufWriter writer;
    writer.add("split.no", index);
    writer.add("split.count", count);
    const std::string bytes = writer.file();
    const auto file = GgufFile::parse(std::as_bytes(std::span(bytes)));
    ASSERT_TRUE(file);
    EXPECT_FALSE(gguf_part(*file));
  }
}

}  // namespace
}  // namespace plimsoll
