// ModulePattern: one entry of a quantised checkpoint's list of modules ("re:.*self_attn.*",
// "lm_head", "*mlp.gate*").
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "shared/base/result.h"

namespace plimsoll {

enum class PatternSyntax {
  compressed_tensors,  // "re:" and a regular expression that matches at the start, or a whole name
  part_of_name,        // AWQ, FP8: a part of the name
  wildcards,           // ModelOpt: "*" is anything
};

class ModulePattern {
 public:
  // Errors: a regular expression that cannot be compiled.
  static Result<ModulePattern> parse(std::string text, PatternSyntax syntax);
  ModulePattern(ModulePattern&& other) noexcept;
  ModulePattern& operator=(ModulePattern&& other) noexcept;
  ~ModulePattern();

  const std::string& text() const { return text_; }
  // Errors: the expression needs more steps than we spend on one name.
  Result<bool> matches(std::string_view module) const;

 private:
  struct Regex;
  ModulePattern(std::string text, PatternSyntax syntax);

  std::string text_;
  PatternSyntax syntax_;
  std::unique_ptr<Regex> regex_;  // of "re:"
};

}  // namespace plimsoll
