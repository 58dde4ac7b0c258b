// GgufBytes: builds GGUF files byte by byte, also such as no writer would write.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace plimsoll {

class GgufBytes {
 public:
  template <typename T>
  GgufBytes& number(T value) {
    const std::size_t end = bytes_.size();
    bytes_.resize(end + sizeof value);
    std::memcpy(bytes_.data() + end, &value, sizeof value);
    return *this;
  }
  GgufBytes& u32(std::uint32_t value) { return number(value); }
  GgufBytes& u64(std::uint64_t value) { return number(value); }
  GgufBytes& text(std::string_view text) {
    u64(text.size());
    bytes_.append(text);
    return *this;
  }
  GgufBytes& start(std::uint64_t tensors, std::uint64_t pairs, std::uint32_t version = 3) {
    bytes_.append("GGUF");
    return u32(version).u64(tensors).u64(pairs);
  }
  GgufBytes& int_pair(std::string_view key, std::uint32_t value) {
    return text(key).u32(4).u32(value);
  }
  GgufBytes& text_pair(std::string_view key, std::string_view value) {
    return text(key).u32(8).text(value);
  }
  // Sizes with the contiguous one first, as they are stored.
  GgufBytes& tensor(std::string_view name, std::initializer_list<std::uint64_t> sizes,
                    std::uint32_t type, std::uint64_t offset) {
    text(name).u32(static_cast<std::uint32_t>(sizes.size()));
    for (const std::uint64_t size : sizes) u64(size);
    return u32(type).u64(offset);
  }
  GgufBytes& pad(std::size_t alignment = 32) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment);
    return *this;
  }
  GgufBytes& zeros(std::size_t count) {
    bytes_.resize(bytes_.size() + count);
    return *this;
  }

  std::size_t size() const { return bytes_.size(); }
  const std::string& text() const { return bytes_; }
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(bytes_)); }

 private:
  std::string bytes_;
};

}  // namespace plimsoll
