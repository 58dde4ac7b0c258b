#include "shared/model/module_pattern.h"

#include <array>
#include <utility>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include "shared/base/check.h"
#include "shared/base/text.h"

namespace plimsoll {
namespace {

constexpr std::string_view kRegexPrefix = "re:";
constexpr std::size_t kPatternBytesMax = 4096;
// A pattern with nested repetition must not cost seconds for each of a model's modules.
constexpr std::uint32_t kMatchStepsMax = 100'000;
constexpr std::uint32_t kMatchKiBMax = 1024;

bool matches_wildcards(std::string_view pattern, std::string_view text) {
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;  // the last one, to which we return
  std::size_t resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

}  // namespace

struct ModulePattern::Regex {
  Regex(pcre2_code* compiled, pcre2_match_data* match, pcre2_match_context* bounds)
      : code(compiled), data(match), limits(bounds) {}
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;
  ~Regex() {
    pcre2_match_context_free(limits);
    pcre2_match_data_free(data);
    pcre2_code_free(code);
  }
  pcre2_code* code;
  pcre2_match_data* data;
  pcre2_match_context* limits;
};

ModulePattern::ModulePattern(std::string text, PatternSyntax syntax)
    : text_(std::move(text)), syntax_(syntax) {}
ModulePattern::ModulePattern(ModulePattern&& other) noexcept = default;
ModulePattern& ModulePattern::operator=(ModulePattern&& other) noexcept = default;
ModulePattern::~ModulePattern() = default;

Result<ModulePattern> ModulePattern::parse(std::string text, PatternSyntax syntax) {
  if (text.size() > kPatternBytesMax) {
    return invalid(fmt::format("a module pattern is {} bytes long; expected at most {}",
                               text.size(), kPatternBytesMax));
  }
  ModulePattern pattern(std::move(text), syntax);
  if (syntax != PatternSyntax::compressed_tensors || !pattern.text_.starts_with(kRegexPrefix)) {
    return pattern;
  }
  const std::string_view source = std::string_view(pattern.text_).substr(kRegexPrefix.size());
  int error = 0;
  std::size_t position = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(),
                                   PCRE2_ANCHORED, &error, &position, nullptr);
  if (code == nullptr) {
    std::array<PCRE2_UCHAR, 120> words{};
    pcre2_get_error_message(error, words.data(), words.size());
    return invalid(fmt::format("the module pattern \"{}\" is no regular expression: {} at byte {}",
                               to_valid_utf8(pattern.text_),
                               reinterpret_cast<const char*>(words.data()), position));
  }
  pcre2_match_context* limits = pcre2_match_context_create(nullptr);
  CHECK(limits != nullptr);
  pcre2_set_match_limit(limits, kMatchStepsMax);
  pcre2_set_heap_limit(limits, kMatchKiBMax);
  pattern.regex_ =
      std::make_unique<Regex>(code, pcre2_match_data_create_from_pattern(code, nullptr), limits);
  CHECK(pattern.regex_->data != nullptr);
  return pattern;
}

Result<bool> ModulePattern::matches(std::string_view module) const {
  if (syntax_ == PatternSyntax::part_of_name) return module.find(text_) != std::string_view::npos;
  if (syntax_ == PatternSyntax::wildcards) return matches_wildcards(text_, module);
  if (regex_ == nullptr) return module == text_;
  const int found = pcre2_match(regex_->code, reinterpret_cast<PCRE2_SPTR>(module.data()),
                                module.size(), 0, 0, regex_->data, regex_->limits);
  if (found >= 0 || found == PCRE2_ERROR_NOMATCH) return found >= 0;
  return invalid(fmt::format("the module pattern \"{}\" is too costly to match against {}",
                             to_valid_utf8(text_), module));
}

}  // namespace plimsoll
