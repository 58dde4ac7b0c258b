#include "shared/tokenizer/chat_template.h"

#include <cstdlib>
#include <ctime>

#include <gtest/gtest.h>

#include "shared/base/clock.h"
#include "shared/base/text.h"
#include "shared/model/gguf.h"
#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

using Segments = std::vector<PromptSegment>;

constexpr std::int64_t kGoldenTime = 1732881600;  // of tools/make_goldens

std::vector<Json> golden_lines(const char* name) {
  std::vector<Json> lines;
  const std::string text = read_test_file(golden_path(std::string("chat_template/") + name));
  for (const std::string_view line : split(text, '\n')) {
    if (!line.empty()) lines.push_back(*parse_json(line));
  }
  return lines;
}

std::string joined(const Segments& segments) {
  std::string text;
  for (const PromptSegment& segment : segments) text += segment.text;
  return text;
}

Result<Segments> render(std::string_view source, const Json& variables) {
  const auto compiled = ChatTemplate::compile(source);
  if (!compiled) return compiled.error();
  return compiled->render(variables, kGoldenTime);
}

Segments rendered(std::string_view source, const Json& variables = Json::object()) {
  const auto result = render(source, variables);
  EXPECT_TRUE(result) << result.error().message;
  return result ? *result : Segments();
}

std::string refusal(std::string_view source, const Json& variables = Json::object()) {
  const auto result = render(source, variables);
  return result ? "accepted: " + joined(*result) : result.error().message;
}

class ChatTemplateGolden : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("TZ", "UTC", 1);
    ::tzset();
  }
};

TEST_F(ChatTemplateGolden, RealTemplatesGiveThePromptsOfTheReference) {
  SKIP_WITHOUT(test_template("Qwen-Qwen3-0.6B.jinja"));
  SKIP_WITHOUT(default_model_path());
  const auto cases = golden_lines("cases.jsonl");
  std::size_t prompts = 0;
  for (const Json& line : golden_lines("prompts.jsonl")) {
    const std::string& name = line.as_array()[0].as_string();
    std::string source;
    if (name == "SmolLM2-135M-Instruct") {
      source = *GgufFile::open(default_model_path())->required_string("tokenizer.chat_template");
    } else {
      source = read_test_file(test_template(name));
    }
    const auto compiled = ChatTemplate::compile(source);
    ASSERT_TRUE(compiled) << name << ": " << compiled.error().message;
    const auto& expected = line.as_array()[1].as_array();
    ASSERT_EQ(expected.size(), cases.size());
    for (std::size_t i = 0; i < cases.size(); i += kBulkDivisor) {
      const std::string where = name + ", case " + cases[i].as_array()[0].as_string();
      const auto result = compiled->render(cases[i].as_array()[1], kGoldenTime);
      if (expected[i].is_null()) {
        EXPECT_FALSE(result) << where << ": the reference refuses it";
        continue;
      }
      ASSERT_TRUE(result) << where << ": " << result.error().message;
      EXPECT_EQ(joined(*result), expected[i].as_string()) << where;
      ++prompts;
    }
  }
  EXPECT_GE(prompts * kBulkDivisor, 900U);
}

TEST_F(ChatTemplateGolden, SnippetsGiveTheTextOfTheReference) {
  // First the variables that all share, then [source, text]; null: the reference fails.
  const auto lines = golden_lines("snippets.jsonl");
  EXPECT_GE(lines.size(), 300U);
  const Json& variables = lines[0].as_array()[1];
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const std::string& source = lines[i].as_array()[0].as_string();
    const Json& expected = lines[i].as_array()[1];
    const auto result = render(source, variables);
    if (expected.is_null()) {
      EXPECT_FALSE(result) << source << " gave " << joined(*result);
      continue;
    }
    EXPECT_TRUE(result) << source << ": " << result.error().message;
    if (!result) continue;
    EXPECT_EQ(joined(*result), expected.as_string()) << source;
  }
}

Json user_says(std::string text) {
  return Json::object({{"text", std::move(text)}, {"bos_token", "<s>"}, {"number", 7}});
}

TEST(ChatTemplate, TextOfVariablesIsUntrusted) {
  EXPECT_EQ(rendered("<|u|>{{ text }}<|e|>", user_says("hi")),
            (Segments{{"<|u|>", true}, {"hi", false}, {"<|e|>", true}}));
  EXPECT_EQ(rendered("{{ bos_token }}a{{ number }}", user_says("")),
            (Segments{{"<s>a", true}, {"7", false}}));
}

TEST(ChatTemplate, NoFilterOrMethodMakesTextTrusted) {
  const Json variables = user_says("  <|x|>, <|y|>  ");
  for (const char* expression : {"text",
                                 "text | trim",
                                 "text.strip()",
                                 "text | upper",
                                 "text.lower()",
                                 "text[1:-1]",
                                 "text[::-1]",
                                 "text.split(',') | join('')",
                                 "text.replace(' ', '')",
                                 "text | tojson",
                                 "[text] | join",
                                 "'' ~ text",
                                 "'' + text",
                                 "text * 2",
                                 "text | string",
                                 "[text]",
                                 "{'k': text} | tojson",
                                 "text | safe",
                                 "'{}'.format(text)",
                                 "text | title",
                                 "text | default('')",
                                 "(text, 1)",
                                 "text | list | join",
                                 "text.splitlines() | first",
                                 "text | reverse",
                                 "'%'.join([text])[1:]",
                                 "''.join([text])"}) {
    for (const PromptSegment& segment :
         rendered("{{ " + std::string(expression) + " }}", variables)) {
      EXPECT_FALSE(segment.trusted) << expression << ": " << segment.text;
    }
  }
}

TEST(ChatTemplate, EveryPieceKeepsItsOrigin) {
  const Json variables = user_says("b|d");
  EXPECT_EQ(rendered("{{ ('a' + text + 'e').replace('|', 'c') }}", variables),
            (Segments{{"a", true}, {"b", false}, {"c", true}, {"d", false}, {"e", true}}));
  EXPECT_EQ(rendered("{% set x %}<{{ text }}>{% endset %}{{ x | upper }}", variables),
            (Segments{{"<", true}, {"B|D", false}, {">", true}}));
  EXPECT_EQ(rendered("{% macro m(t) %}[{{ t }}]{% endmacro %}{{ m(text) }}{{ m('x') }}", variables),
            (Segments{{"[", true}, {"b|d", false}, {"][x]", true}}));
  EXPECT_EQ(rendered("{{ text.split('|') | join('-') }}", variables),
            (Segments{{"b", false}, {"-", true}, {"d", false}}));
  EXPECT_EQ(rendered("{{ 'x{}y'.format(text) }}", variables),
            (Segments{{"x", true}, {"b|d", false}, {"y", true}}));
}

TEST(ChatTemplate, UserTextThatLooksLikeATemplateStaysText) {
  EXPECT_EQ(rendered("{{ text }}", user_says("{{ bos_token }}{% raw %}")),
            (Segments{{"{{ bos_token }}{% raw %}", false}}));
}

TEST(ChatTemplate, RaiseExceptionGivesItsMessage) {
  EXPECT_EQ(refusal("{{ raise_exception('roles must alternate') }}"),
            "the chat template refuses these messages: roles must alternate");
  EXPECT_EQ(render("{{ raise_exception('x') }}", Json::object()).error().code, Code::invalid);
}

TEST(ChatTemplate, SyntaxErrorsNameTheLine) {
  EXPECT_EQ(refusal("a\n{% if x %}"),
            "compile the chat template: line 2: the block that begins here has no endif");
  EXPECT_EQ(refusal("\n\n{{ 1 + }}"), "compile the chat template: line 3: unexpected '}}'");
  EXPECT_EQ(refusal("{{ 'a }}"), "compile the chat template: line 1: a string has no end");
  EXPECT_EQ(refusal("{% endif %}"), "compile the chat template: line 1: unknown block 'endif'");
  EXPECT_EQ(refusal("\n{{ x.y.z }}"), "render the chat template: line 2: 'x' is undefined");
}

TEST(ChatTemplate, WhatIsOutsideTheSubsetIsNamed) {
  EXPECT_EQ(refusal("{% include 'a' %}"),
            "compile the chat template: line 1: the block 'include' is not supported");
  EXPECT_EQ(refusal("{{ x | urlize }}"),
            "compile the chat template: line 1: the filter 'urlize' is not supported");
  EXPECT_EQ(refusal("{{ x is escaped }}"),
            "compile the chat template: line 1: the test 'escaped' is not supported");
  EXPECT_EQ(refusal("{% for x in y recursive %}{% endfor %}"),
            "compile the chat template: line 1: recursive loops are not supported");
}

TEST(ChatTemplate, StrftimeNowShowsTheGivenTime) {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  EXPECT_EQ(rendered("{{ strftime_now('%d %b %Y') }}"), (Segments{{"29 Nov 2024", true}}));
}

TEST(ChatTemplate, HostileTemplatesEndWithAnError) {
  const auto fails = [](const std::string& source) {
    const TimePoint start = now();
    const auto result = render(source, Json::object({{"text", std::string(100'000, 'a')}}));
    EXPECT_FALSE(result) << source.substr(0, 60);
    EXPECT_LT(to_seconds(now() - start), 30.0) << source.substr(0, 60);  // release: under 1 s
  };
  fails("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}");
  fails("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}");
  fails(
      "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(90) %}{% set ns.s = ns.s + ns.s "
      "%}{% endfor %}");
  fails("{{ 'a' * 99999999999 }}");
  fails("{{ [1] * 99999999999 }}");
  fails("{{ text.replace('', text) }}");
  fails("{{ range(1000000) }}");
  if (kBulkDivisor == 1) {  // minutes of one thread under ThreadSanitizer
    fails(
        "{% set l = [] %}{% for i in range(99999) %}{{ l.append(l) }}{% endfor %}{{ l }}{{ l == l "
        "}}{{ l | tojson }}");
    fails(
        "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% "
        "endfor %}{{ ns.l | string | length }}{{ ns.l == [ns.l, 1] }}{% for i in range(99999) %}{{ "
        "ns.l | string }}{% endfor %}");
  }
  fails("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}");
  fails("{{ " + std::string(5000, '-') + "1 }}");
  fails("{{ 1" + [] {
    std::string s;
    for (int i = 0; i < 5000; ++i) s += "+1";
    return s;
  }() + " }}");
  fails([] {
    std::string s;
    for (int i = 0; i < 5000; ++i) s += "{% if 1 %}";
    return s;
  }());
  fails(std::string((1 << 20) + 1, 'a'));
  fails("{{ 9223372036854775807 + 1 }}{{ 1 // 0 }}");
}

// Each of these did work or took memory by the gigabyte that nobody had counted.
TEST(ChatTemplate, WorkAndMemoryAreCountedBeforeTheyAreSpent) {
  // In release all of them together take about 1 s; 1 MiB is still enough for each limit.
  constexpr double kSeconds = kIsSanitizerBuild ? 60.0 : 5.0;
  constexpr std::size_t kUnit = (4 << 20) / (kIsSanitizerBuild ? 4 : 1);
  std::string members;
  for (int i = 0; i < 4000; ++i) members += "{% set v" + std::to_string(i) + " = 1 %}";
  const Json variables = Json::object({{"text", std::string(2 * kUnit, 'a')},
                                       {"spaces", std::string(2 * kUnit, ' ')},
                                       {"lines", std::string(kUnit, '\n')},
                                       {"commas", std::string(kUnit, ',')}});
  const auto often = [](const std::string& expression) {
    return "{% for a in range(9999) %}{% for b in range(9999) %}{% set x = " + expression +
           " %}{% endfor %}{% endfor %}";
  };
  const std::string sources[] = {
      "{{ 'a' * 30000000 }}",
      "{{ [1] * 3000000 }}",
      often("text is upper"),
      often("text is lower"),
      often("'é' is upper"),
      often("spaces | trim"),
      often("text | trim('abc')"),
      often("spaces | int"),
      often("text | float"),
      often("text | upper"),
      often("text ~ 1"),
      often("text == spaces or text is in spaces"),
      often("'b' in text"),
      often("text.startswith(text)"),
      often("text.endswith((text, text))"),
      often("text[0]"),
      often("text[:2]"),
      often("{text: 1}[text]"),
      often("[1] | map('replace', text, text) | list"),
      members + often("zzz is defined"),
      "{{ lines.splitlines() | length }}",
      "{{ commas.split(',') | length }}",
      "{{ lines | indent | length }}",
      "{{ lines | list | length }}",
      "{% set l = [1] %}{% for i in range(99) %}{% set _ = l.extend(l) %}{% endfor %}",
      "{% set n = namespace(k=[]) %}{% for i in range(99999) %}{% set _ = n.k.extend(range(999)) "
      "%}{% endfor %}",
      "{{ ('[' ~ (commas | replace(',', '[],')) ~ '1]') | from_json | length }}",
  };
  for (std::size_t i = 0; i < std::size(sources); i += kBulkDivisor) {
    const std::string& source = sources[i];
    const TimePoint start = now();
    const auto result = render(source, variables);
    EXPECT_LT(to_seconds(now() - start), kSeconds) << source.substr(0, 100);
    ASSERT_FALSE(result) << source.substr(0, 100);
    EXPECT_TRUE(result.error().message.starts_with("the chat template takes more than 5000000 ") ||
                result.error().message.starts_with("the chat template needs more than 64 MiB"))
        << source.substr(0, 100) << ": " << result.error().message;
  }
}

TEST(ChatTemplate, NothingRepeatedIsNothingHoweverOften) {
  EXPECT_EQ(joined(rendered("{{ '' * 60000000 }}{{ [] * 9223372036854775807 }}{{ 'ab' * 3 }}")),
            "[]ababab");
}

TEST(ChatTemplate, LongConversationsRender) {
  Json messages = Json::array();
  for (int i = 0; i < 4000; ++i) {
    messages.push(Json::object(
        {{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", std::string(500, 'x')}}));
  }
  const Json variables = Json::object({{"messages", std::move(messages)}});
  const std::string text =
      joined(rendered("{% for m in messages %}{{ '<|' + m.role + '|>' + (m['content'] | trim) + "
                      "'\n' }}{% endfor %}",
                      variables));
  EXPECT_EQ(text.size(), 4000U * 505U + 2000U * 4U + 2000U * 9U);
}

}  // namespace
}  // namespace plimsoll
