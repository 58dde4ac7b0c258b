#include "shared/model/hf_folder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/model/derive_weights.h"
#include "shared/model/model_source.h"
#include "shared/model/weight_groups.h"
#include "tests/support/temp_folder.h"

namespace plimsoll {
namespace {

constexpr const char* kConfig =
    R"({"model_type":"qwen3_moe","hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,)"
    R"("num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,"vocab_size":256,)"
    R"("max_position_embeddings":2048,"tie_word_embeddings":false,"torch_dtype":"bfloat16",)"
    R"("num_experts":3,"num_experts_per_tok":2,"moe_intermediate_size":32,"mlp_only_layers":[0]})";

// Every tensor of a config, one by one, as a checkpoint has them.
std::vector<Tensor> checkpoint_of(const HfConfig& config) {
  std::vector<Tensor> tensors;
  const auto groups = derive_weights(config);
  for (const WeightGroup& group : *groups) {
    const bool in_layers = group.name.find("layers.*") != std::string::npos;
    const bool of_experts = group.name.find("experts.*") != std::string::npos;
    const std::int64_t experts = of_experts ? config.spec.experts.count : 1;
    for (std::int64_t i = 0; i < group.count; ++i) {
      std::string name = group.name;
      // Layers with experts are the last ones here, dense ones the first.
      const bool has_experts = name.find("mlp.experts") != std::string::npos ||
                               name.find("mlp.gate.") != std::string::npos;
      const std::int64_t layer = (has_experts ? 1 : 0) + i / experts;
      if (in_layers) name.replace(name.find('*'), 1, std::to_string(layer));
      if (of_experts) name.replace(name.find('*'), 1, std::to_string(i % experts));
      tensors.push_back({std::move(name), group.type, group.shape, group.bytes});
    }
  }
  return tensors;
}

std::string safetensors_of(const std::vector<Tensor>& tensors) {
  Json header = Json::object();
  Bytes end = 0;
  for (const Tensor& tensor : tensors) {
    Json shape = Json::array();
    for (const std::int64_t size : tensor.shape) shape.push(size);
    header.set(tensor.name,
               Json::object({{"dtype", tensor.type},
                             {"shape", std::move(shape)},
                             {"data_offsets", Json::array({end, end + tensor.bytes})}}));
    end += tensor.bytes;
  }
  const std::string text = dump_json(header);
  const std::uint64_t length = text.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + text + std::string(static_cast<std::size_t>(end), '\0');
}

// A folder with two files and an index.
class Checkpoint {
 public:
  Checkpoint() : config_(std::move(parse_hf_config(std::string_view(kConfig)).value())) {
    tensors_ = checkpoint_of(config_);
    write("config.json", kConfig);
  }
  const std::filesystem::path& path() const { return folder_.path(); }
  const HfConfig& config() const { return config_; }
  std::vector<Tensor>& tensors() { return tensors_; }

  void write(const char* name, const std::string& bytes) {
    ASSERT_TRUE(write_file(folder_.path() / name, bytes));
  }
  void write_all() {
    const auto half = tensors_.begin() + std::ssize(tensors_) / 2;
    Json map = Json::object();
    for (auto tensor = tensors_.begin(); tensor != tensors_.end(); ++tensor) {
      map.set(tensor->name, tensor < half ? "model-1.safetensors" : "model-2.safetensors");
    }
    write("model-1.safetensors", safetensors_of({tensors_.begin(), half}));
    write("model-2.safetensors", safetensors_of({half, tensors_.end()}));
    write("model.safetensors.index.json", dump_json(Json::object({{"weight_map", map}})));
  }

 private:
  TempFolder folder_;
  HfConfig config_;
  std::vector<Tensor> tensors_;
};

void expect_refused(const std::filesystem::path& path, std::string_view words) {
  const auto model = read_model(path);
  ASSERT_FALSE(model) << "expected a refusal with: " << words;
  EXPECT_NE(model.error().message.find(words), std::string::npos)
      << "expected: " << words << "\nmessage:  " << model.error().message;
}

TEST(HfFolder, HeadersSayTheSameAsTheConfigImplies) {
  Checkpoint checkpoint;
  checkpoint.write_all();
  const auto model = read_model(checkpoint.path());
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->weight_source, WeightSource::headers);
  EXPECT_TRUE(model->assumptions.empty());
  const auto implied = spec_of_config(*parse_json(kConfig), "");
  ASSERT_TRUE(implied) << implied.error().message;
  EXPECT_EQ(model->weight_bytes(), implied->weight_bytes());
  EXPECT_EQ(model->groups.size(), implied->groups.size());
}

TEST(HfFolder, AFolderWithoutAnIndexHasItsModelFiles) {
  Checkpoint checkpoint;
  checkpoint.write("model.safetensors", safetensors_of(checkpoint.tensors()));
  checkpoint.write("consolidated.safetensors", "a copy under other names");
  const auto model = read_model(checkpoint.path());
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->weight_source, WeightSource::headers);
}

TEST(HfFolder, UnknownWeightsAreCountedAndSaid) {
  Checkpoint checkpoint;
  checkpoint.tensors().push_back({"model.layers.0.self_attn.sinks", "BF16", {4}, 8});
  checkpoint.write_all();
  const auto model = read_model(checkpoint.path());
  ASSERT_TRUE(model) << model.error().message;
  ASSERT_EQ(model->assumptions.size(), 1U);
  EXPECT_EQ(model->assumptions[0],
            "1 weights that are not known to us (model.layers.*.self_attn.sinks, 8 B in all) are "
            "whole on every rank");
}

TEST(HfFolder, MissingWeightsAreNamed) {
  Checkpoint checkpoint;
  std::erase_if(checkpoint.tensors(), [](const Tensor& tensor) {
    return tensor.name == "model.layers.1.self_attn.k_proj.weight";
  });
  checkpoint.write_all();
  expect_refused(checkpoint.path(),
                 "hold 1 weights layers.*.self_attn.k_proj; config.json implies 2");
}

TEST(HfFolder, ShapesOfAnotherModelAreRefused) {
  Checkpoint checkpoint;
  for (Tensor& tensor : checkpoint.tensors()) {
    if (tensor.name == "model.norm.weight") tensor = {tensor.name, "BF16", {65}, 130};
  }
  checkpoint.write_all();
  expect_refused(checkpoint.path(), "has the shape [65]; config.json says [64]");
}

TEST(HfFolder, AFileOfTheIndexThatIsNotThereIsNamed) {
  Checkpoint checkpoint;
  checkpoint.write_all();
  std::filesystem::remove(checkpoint.path() / "model-2.safetensors");
  expect_refused(checkpoint.path(),
                 "lists the file model-2.safetensors, which is not in the folder");
}

TEST(HfFolder, AnIndexThatListsMoreThanTheFilesHoldIsRefused) {
  Checkpoint checkpoint;
  checkpoint.write_all();
  Json map = Json::object({{"one.more", "model-1.safetensors"}});
  for (const Tensor& tensor : checkpoint.tensors()) {
    map.set(tensor.name,
            tensor.name < "model.layers.1" ? "model-1.safetensors" : "model-2.safetensors");
  }
  checkpoint.write("model.safetensors.index.json", dump_json(Json::object({{"weight_map", map}})));
  expect_refused(checkpoint.path(), "tensors; the files that it names hold");
}

TEST(HfFolder, AnIndexNamesFilesBesideItAlone) {
  for (const char* file : {"../x.safetensors", "/etc/passwd", "", "..", "a/b"}) {
    const Json json = Json::object({{"weight_map", Json::object({{"t", file}})}});
    EXPECT_FALSE(parse_safetensors_index(dump_json(json))) << file;
  }
  EXPECT_FALSE(parse_safetensors_index(R"({"weight_map":{"t":3}})"));
  EXPECT_FALSE(parse_safetensors_index("{}"));
  EXPECT_FALSE(parse_safetensors_index("["));
}

}  // namespace
}  // namespace plimsoll
