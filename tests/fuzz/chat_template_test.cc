// Hostile chat templates: they compile or not, they render or not, and always return soon.
#include "shared/tokenizer/chat_template.h"

#include <gtest/gtest.h>

#include "shared/base/json.h"
#include "shared/base/text.h"
#include "tests/support/fuzz.h"
#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

void fuzz_one(std::span<const std::byte> bytes) {
  const std::string_view source(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto compiled = ChatTemplate::compile(source);
  if (!compiled) return;
  const Json variables = Json::object(
      {{"messages",
        Json::array({Json::object({{"role", "user"}, {"content", "Hällo \xF0\x9F\x98\x80"}})})},
       {"add_generation_prompt", true},
       {"n", 3},
       {"l", Json::array({1, "a", nullptr})},
       {"d", Json::object({{"k", 1.5}})}});
  const auto rendered = compiled->render(variables, 0);
  if (!rendered) return;
  for (std::size_t i = 0; i < rendered->size(); ++i) {
    EXPECT_FALSE((*rendered)[i].text.empty());
    EXPECT_TRUE(i == 0 || (*rendered)[i].trusted != (*rendered)[i - 1].trusted);
  }
}
PLIMSOLL_FUZZ_MAIN(fuzz_one)

TEST(FuzzChatTemplate, ReturnsForAnything) {
  std::vector<std::string> seeds;
  const std::string snippets = read_test_file(golden_path("chat_template/snippets.jsonl"));
  for (const std::string_view line : split(snippets, '\n')) {
    if (!line.empty()) seeds.push_back(parse_json(line)->as_array()[0].as_string());
  }
  FuzzOptions options;
  options.seed = 20241129;
  options.dictionary = {
      "{{",           "}}",      "{%",          "%}",     "{#",       "-%}",   "{%- for x in l %}",
      "{% endfor %}", " if ",    " else ",      " is ",   " in ",     " not ", "loop.",
      "|join",        "|tojson", "namespace()", "[::-1]", "range(9)", "**"};
  const FuzzReport report = fuzz_corpus(seeds, options, fuzz_one);
  EXPECT_GE(report.inputs, seeds.size());
}

}  // namespace
}  // namespace plimsoll
