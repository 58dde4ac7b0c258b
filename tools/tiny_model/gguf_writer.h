// GgufWriter: puts metadata and weights together into the bytes of a GGUF v3 file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shared/model/dtype.h"
#include "shared/model/gguf.h"

namespace plimsoll {

class GgufWriter {
 public:
  // Integers are written as u32 where they fit, else as i64 (in arrays: i32, else i64), floats as
  // f32, as in the files of GGUF's own converters. REQUIRES: each key and name once.
  void add(std::string key, GgufValue value);
  // Shape with the outermost size first; `blocks` is as long as the type and shape ask for.
  void add_weight(std::string name, DType dtype, std::vector<std::int64_t> shape,
                  std::vector<std::byte> blocks);
  // The same weight under another name. REQUIRES: `of` was added.
  void add_copy(std::string name, std::string_view of);
  // The whole file; weights lie in the order in which they were added.
  std::string file() const;

 private:
  struct Weight {
    std::string name;
    DType dtype;
    std::vector<std::int64_t> shape;
    std::vector<std::byte> blocks;
    std::size_t copy_of = SIZE_MAX;  // the index of another weight, which has the blocks
  };

  const std::vector<std::byte>& blocks_of(const Weight& weight) const {
    return weight.copy_of == SIZE_MAX ? weight.blocks : weights_[weight.copy_of].blocks;
  }

  std::vector<std::pair<std::string, GgufValue>> metadata_;
  std::vector<Weight> weights_;
};

}  // namespace plimsoll
