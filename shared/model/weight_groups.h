// WeightGroups: tensors in, groups out: each name is looked up in the weight table, its shape
// compared with the model's sizes, and those that are alike are counted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "shared/base/result.h"
#include "shared/model/model_spec.h"
#include "shared/model/weight_index.h"

namespace plimsoll {

struct Tensor {
  std::string name;
  std::string type;                 // "BF16"
  std::vector<std::int64_t> shape;  // as stored, outermost first
  Bytes bytes = 0;
};

class WeightGroups {
 public:
  // REQUIRES: model outlives this; its sizes are read, its groups are not.
  explicit WeightGroups(const ModelSpec& model) : model_(model) {}

  // `count` tensors like this one, under Hugging Face's names. Errors: a shape that contradicts the
  // model's sizes. An unknown name is no error: it is counted as WeightPart::other.
  Status add_hf(const Tensor& tensor, std::int64_t count = 1);
  Status add_gguf(const WeightInfo& weight);

  std::vector<WeightGroup> take() { return std::move(groups_); }

 private:
  void count(WeightGroup one, std::int64_t count);

  const ModelSpec& model_;
  std::vector<WeightGroup> groups_;
  std::unordered_map<std::string, std::vector<std::size_t>> places_;  // by name
};

// "model.layers.3.mlp.experts.17.up_proj" to "model.layers.*.mlp.experts.*.up_proj".
std::string with_stars(std::string_view name);

// The groups of all weights of a GGUF file.
Result<std::vector<WeightGroup>> gguf_groups(const ModelSpec& model);

}  // namespace plimsoll
