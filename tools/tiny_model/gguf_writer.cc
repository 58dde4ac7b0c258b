#include "tools/tiny_model/gguf_writer.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "shared/base/check.h"
#include "shared/base/units.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kAlignment = 32;

// GGUF's ids of value types.
constexpr std::uint32_t kU32 = 4;
constexpr std::uint32_t kI32 = 5;
constexpr std::uint32_t kF32 = 6;
constexpr std::uint32_t kBool = 7;
constexpr std::uint32_t kString = 8;
constexpr std::uint32_t kArray = 9;
constexpr std::uint32_t kI64 = 11;

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_text(std::string& out, std::string_view text) {
  put(out, static_cast<std::uint64_t>(text.size()));
  out.append(text);
}

void put_array(std::string& out, std::uint32_t type, std::size_t count) {
  put(out, kArray);
  put(out, type);
  put(out, static_cast<std::uint64_t>(count));
}

void pad(std::string& out) {
  out.resize(static_cast<std::size_t>(round_up(std::ssize(out), kAlignment)));
}

struct PutValue {
  std::string& out;

  void operator()(bool value) const {
    put(out, kBool);
    put(out, static_cast<std::uint8_t>(value));
  }
  void operator()(std::int64_t value) const {
    if (std::in_range<std::uint32_t>(value)) {
      put(out, kU32);
      put(out, static_cast<std::uint32_t>(value));
    } else {
      put(out, kI64);
      put(out, value);
    }
  }
  void operator()(double value) const {
    put(out, kF32);
    put(out, static_cast<float>(value));
  }
  void operator()(const std::string& value) const {
    put(out, kString);
    put_text(out, value);
  }
  void operator()(const std::vector<bool>& values) const {
    put_array(out, kBool, values.size());
    for (const bool value : values) put(out, static_cast<std::uint8_t>(value));
  }
  void operator()(const std::vector<std::int64_t>& values) const {
    const bool narrow = std::ranges::all_of(
        values, [](std::int64_t value) { return std::in_range<std::int32_t>(value); });
    put_array(out, narrow ? kI32 : kI64, values.size());
    for (const std::int64_t value : values) {
      if (narrow) {
        put(out, static_cast<std::int32_t>(value));
      } else {
        put(out, value);
      }
    }
  }
  void operator()(const std::vector<double>& values) const {
    put_array(out, kF32, values.size());
    for (const double value : values) put(out, static_cast<float>(value));
  }
  void operator()(const std::vector<std::string>& values) const {
    put_array(out, kString, values.size());
    for (const std::string& value : values) put_text(out, value);
  }
};

}  // namespace

void GgufWriter::add(std::string key, GgufValue value) {
  metadata_.emplace_back(std::move(key), std::move(value));
}

void GgufWriter::add_weight(std::string name, DType dtype, std::vector<std::int64_t> shape,
                            std::vector<std::byte> blocks) {
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) elements *= size;
  CHECK(std::ssize(blocks) == stored_bytes(dtype, elements));
  weights_.push_back({std::move(name), dtype, std::move(shape), std::move(blocks), SIZE_MAX});
}

void GgufWriter::add_copy(std::string name, std::string_view of) {
  const auto found = std::ranges::find(weights_, of, &Weight::name);
  CHECK(found != weights_.end() && found->copy_of == SIZE_MAX);
  const auto index = static_cast<std::size_t>(found - weights_.begin());
  weights_.push_back({std::move(name), found->dtype, found->shape, {}, index});
}

std::string GgufWriter::file() const {
  std::string out = "GGUF";
  put(out, std::uint32_t{3});
  put(out, static_cast<std::uint64_t>(weights_.size()));
  put(out, static_cast<std::uint64_t>(metadata_.size()));
  for (const auto& [key, value] : metadata_) {
    put_text(out, key);
    std::visit(PutValue{out}, value);
  }
  std::int64_t offset = 0;
  for (const Weight& weight : weights_) {
    put_text(out, weight.name);
    put(out, static_cast<std::uint32_t>(weight.shape.size()));
    for (auto size = weight.shape.rbegin(); size != weight.shape.rend(); ++size) {
      put(out, static_cast<std::uint64_t>(*size));
    }
    put(out, static_cast<std::uint32_t>(weight.dtype));
    put(out, static_cast<std::uint64_t>(offset));
    offset = round_up(offset + std::ssize(blocks_of(weight)), kAlignment);
  }
  pad(out);
  for (const Weight& weight : weights_) {
    const std::vector<std::byte>& blocks = blocks_of(weight);
    out.append(reinterpret_cast<const char*>(blocks.data()), blocks.size());
    pad(out);
  }
  return out;
}

}  // namespace plimsoll
