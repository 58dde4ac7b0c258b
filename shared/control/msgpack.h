// Msgpack: writes and reads single MessagePack values in place, with no tree in between.
//
// The codec needs it for what a tree costs on the path of every token, and because Json cannot hold
// the upper half of the 64-bit seeds.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace plimsoll {

class MsgpackWriter {
 public:
  void boolean(bool value);
  void integer(std::int64_t value);
  void unsigned_integer(std::uint64_t value);
  void number(double value);
  void string(std::string_view value);  // any bytes; nothing is checked or changed
  void array(std::size_t items);        // that many values follow
  void map(std::size_t members);        // that many pairs of key and value follow
  void raw(std::string_view encoded);   // one whole value

  std::string& bytes() { return out_; }

 private:
  void big_endian(std::uint64_t value, int bytes);
  void sized(std::uint8_t first_of_three, std::size_t size);

  std::string out_;
};

// Reads value after value. A read of another kind than the next value's, or past the end, returns
// nothing and leaves the position where it was.
class MsgpackReader {
 public:
  explicit MsgpackReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::optional<bool> boolean();
  std::optional<std::int64_t> integer();
  std::optional<std::uint64_t> unsigned_integer();
  std::optional<double> number();            // takes integers too
  std::optional<std::string_view> string();  // lives as long as the bytes
  std::optional<std::size_t> array();        // never more items than bytes are left
  std::optional<std::size_t> map();          // likewise
  bool skip();                               // one whole value, however deep; false: cut short
  const char* kind() const;                  // of the next value, for messages: "a string"

  std::size_t position() const { return position_; }
  void seek(std::size_t position) { position_ = position; }
  bool at_end() const { return position_ == bytes_.size(); }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::size_t left() const { return bytes_.size() - position_; }
  std::uint8_t peek() const { return static_cast<std::uint8_t>(bytes_[position_]); }
  // The big-endian number of that many bytes after the first one; nothing where it is cut short.
  std::optional<std::uint64_t> after_first(std::size_t bytes) const;
  bool skip_one(std::uint64_t& pending);

  std::span<const std::byte> bytes_;
  std::size_t position_ = 0;
};

}  // namespace plimsoll
