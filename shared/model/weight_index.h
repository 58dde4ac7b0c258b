// WeightIndex: weight name to type, shape and place in the file. No weights are read to build it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/units.h"
#include "shared/model/dtype.h"

namespace plimsoll {

struct WeightInfo {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;  // outermost first: a matrix is [rows = outputs, cols = inputs]
  std::uint64_t offset = 0;         // of the first byte, from the start of the file
  Bytes bytes = 0;

  std::int64_t cols() const { return shape.back(); }
  std::int64_t rows() const;  // the product of all dimensions but the last
};

class WeightIndex {
 public:
  // False where the name is taken already.
  bool add(WeightInfo info);
  const WeightInfo* find(std::string_view name) const;
  const std::map<std::string, WeightInfo, std::less<>>& all() const { return weights_; }
  Bytes bytes() const;  // of all weights, as stored

 private:
  std::map<std::string, WeightInfo, std::less<>> weights_;
};

}  // namespace plimsoll
