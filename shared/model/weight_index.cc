#include "shared/model/weight_index.h"

#include <utility>

namespace plimsoll {

std::int64_t WeightInfo::rows() const {
  std::int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows;
}

bool WeightIndex::add(WeightInfo info) {
  std::string name = info.name;
  return weights_.insert({std::move(name), std::move(info)}).second;
}

const WeightInfo* WeightIndex::find(std::string_view name) const {
  const auto found = weights_.find(name);
  return found == weights_.end() ? nullptr : &found->second;
}

Bytes WeightIndex::bytes() const {
  Bytes sum = 0;
  for (const auto& [name, weight] : weights_) sum += weight.bytes;
  return sum;
}

}  // namespace plimsoll
