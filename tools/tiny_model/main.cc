// tiny_model: writes a small model with random weights; see tiny_model.h.
#include <charconv>
#include <cstdio>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "shared/base/file.h"
#include "tools/tiny_model/requantise.h"
#include "tools/tiny_model/tiny_model.h"

namespace plimsoll {
namespace {

constexpr const char* kUsage =
    "usage: tiny_model --output FILE [--type "
    "F32|F16|BF16|Q4_0|Q4_1|Q5_0|Q5_1|Q8_0|Q4_K|Q5_K|Q6_K]\n"
    "                  [--layers N] [--hidden N] [--heads N] [--kv-heads N] [--head-dim N] [--ffn "
    "N]\n"
    "                  [--context N] [--head tied|own] [--rope-freqs yes|no] [--vocab-from FILE]\n"
    "                  [--same-layers yes|no]\n"
    "                  [--architecture llama|qwen2|qwen3|gemma3] [--window N] [--window-pattern "
    "N]\n"
    "                  [--seed N]\n"
    "       tiny_model --requantise FILE --type TYPE --output FILE\n"
    "       tiny_model --cut FILE --layers N --output FILE\n"
    "Writes a GGUF model with random weights, or a real one in another type or with its first "
    "layers, for tests.\n";

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

std::optional<DType> type_named(std::string_view name) {
  for (const DTypeInfo& info : all_dtypes()) {
    if (info.name == name) return info.dtype;
  }
  return std::nullopt;
}

template <typename T>
bool read_number(std::string_view text, T& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

bool read_choice(std::string_view text, std::pair<std::string_view, std::string_view> yes_no,
                 bool& choice) {
  choice = text == yes_no.first;
  return choice || text == yes_no.second;
}

struct Arguments {
  TinyModel shape;
  std::filesystem::path requantised;  // empty: random weights
  std::filesystem::path cut;          // likewise
  std::filesystem::path output;
};

bool read_option(std::string_view option, std::string_view value, Arguments& arguments) {
  TinyModel& shape = arguments.shape;
  const std::pair<std::string_view, std::int64_t*> sizes[] = {
      {"--layers", &shape.layers},
      {"--hidden", &shape.hidden},
      {"--heads", &shape.heads},
      {"--kv-heads", &shape.kv_heads},
      {"--head-dim", &shape.head_dim},
      {"--ffn", &shape.ffn},
      {"--context", &shape.context_length},
      {"--window", &shape.window},
      {"--window-pattern", &shape.window_pattern}};
  for (const auto& [name, size] : sizes) {
    if (name == option) return read_number(value, *size);
  }
  if (option == "--type") {
    const auto type = type_named(value);
    if (type) shape.type = *type;
    return type.has_value();
  }
  if (option == "--seed") return read_number(value, shape.seed);
  if (option == "--same-layers") return read_choice(value, {"yes", "no"}, shape.same_layers);
  if (option == "--head") return read_choice(value, {"tied", "own"}, shape.tied_head);
  if (option == "--rope-freqs") return read_choice(value, {"yes", "no"}, shape.rope_freqs);
  if (option == "--architecture") {
    shape.architecture = value;
    return true;
  }
  if (option == "--vocab-from") shape.vocab_from = value;
  if (option == "--requantise") {
    arguments.requantised = value;
    return true;
  }
  if (option == "--cut") {
    arguments.cut = value;
    return true;
  }
  if (option == "--output") arguments.output = value;
  return option == "--vocab-from" || option == "--output";
}

int run(std::span<char*> words) {
  Arguments arguments;
  for (std::size_t i = 0; i < words.size(); i += 2) {
    const char* value = i + 1 < words.size() ? words[i + 1] : nullptr;
    if (value == nullptr || !read_option(words[i], value, arguments)) {
      std::fprintf(stderr, "tiny_model: cannot use %s %s\n%s", words[i],
                   value != nullptr ? value : "without a value", kUsage);
      return kExitUsage;
    }
  }
  if (arguments.output.empty()) {
    std::fputs(kUsage, stderr);
    return kExitUsage;
  }
  const auto write = [&]() -> Status {
    if (!arguments.cut.empty()) {
      const GgufFile file = TRY(GgufFile::open(arguments.cut));
      return write_file(arguments.output, TRY(keep_layers(file, arguments.shape.layers)));
    }
    if (arguments.requantised.empty()) {
      return write_file(arguments.output, TRY(make_tiny_model(arguments.shape)));
    }
    const GgufFile file = TRY(GgufFile::open(arguments.requantised));
    return write_file(arguments.output, TRY(requantise(file, arguments.shape.type)));
  };
  const Status status = write();
  if (status) return 0;
  std::fprintf(stderr, "tiny_model: %s\n", status.error().message.c_str());
  return kExitFailed;
}

}  // namespace
}  // namespace plimsoll

int main(int count, char** words) {
  return plimsoll::run(std::span(words, static_cast<std::size_t>(count)).subspan(1));
}
