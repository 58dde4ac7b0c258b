#include "shared/tokenizer/jinja/text.h"

#include <gtest/gtest.h>

namespace plimsoll::jinja {
namespace {

// Trusted bytes as they are, untrusted ones in brackets.
std::string shown(const Text& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i == 0 ? !text.trusted(i) : text.trusted(i - 1) && !text.trusted(i)) out += '[';
    out += text.bytes()[i];
    if (!text.trusted(i) && (i + 1 == text.size() || text.trusted(i + 1))) out += ']';
  }
  return out;
}

Text mixed() {
  Text text("ab", true);
  text.append(" cd ", false);
  text.append("ef", true);
  return text;
}

TEST(JinjaText, RemembersWhoWroteEachByte) {
  EXPECT_EQ(shown(mixed()), "ab[ cd ]ef");
  EXPECT_EQ(shown(mixed().sub(1, 3)), "b[ c]");
  EXPECT_EQ(shown(upper(mixed())), "AB[ CD ]EF");
  EXPECT_EQ(shown(replace(mixed(), " ", Text("_", true), 9)), "ab_[cd]_ef");
  std::vector<std::string> parts;
  for (const Text& part : split_at_spaces(mixed(), std::nullopt)) parts.push_back(shown(part));
  EXPECT_EQ(parts, (std::vector<std::string>{"ab", "[cd]", "ef"}));
}

TEST(JinjaText, PartsAreCountedAsTheyAreCut) {
  for (const char* source :
       {"", " ", "a", " a  b\u3000c ", "a\n", "\n\n", "a\r\nb\u2028c", ",,", "a,b", ",a"}) {
    const Text text(source, true);
    EXPECT_EQ(count_parts(source, ","), split(text, ",", std::nullopt).size()) << source;
    EXPECT_EQ(count_words(source), split_at_spaces(text, std::nullopt).size()) << source;
    EXPECT_GE(count_lines(source), split_lines(text).size()) << source;
    EXPECT_LE(count_lines(source), split_lines(text).size() + 2) << source;
  }
}

TEST(JinjaText, StripsUnicodeSpacesAndGivenCharacters) {
  EXPECT_EQ(strip(Text("\u3000\u00a0 a b\u2028\x1f", true), std::nullopt, {}).bytes(), "a b");
  EXPECT_EQ(strip(Text("éaéé", true), "é", {}).bytes(), "a");
  EXPECT_EQ(strip(Text("  a  ", true), std::nullopt, {.left = false}).bytes(), "  a");
  EXPECT_EQ(strip(Text("  ", true), std::nullopt, {}).bytes(), "");
}

TEST(JinjaText, MapsTheCaseOfAnyScript) {
  EXPECT_EQ(upper(Text("straße éω", true)).bytes(), "STRAßE ÉΩ");
  EXPECT_EQ(lower(Text("ÀЖ", true)).bytes(), "àж");
  EXPECT_EQ(title(Text("ab cD éf", true)).bytes(), "Ab Cd Éf");
  EXPECT_EQ(capitalize(Text("éAB", true)).bytes(), "Éab");
  EXPECT_FALSE(has_case(Text("12 日本", true)));
}

TEST(JinjaText, CountsCharacters) {
  EXPECT_EQ(count_characters("aé日😀"), 4U);
  EXPECT_EQ(character_starts("aé日"), (std::vector<std::size_t>{0, 1, 3, 6}));
}

TEST(JinjaText, SplitsAsPythonDoes) {
  const auto parts = [](const std::vector<Text>& texts) {
    std::string out;
    for (const Text& text : texts) out += text.bytes() + ";";
    return out;
  };
  EXPECT_EQ(parts(split(Text("a,b,,c", true), ",", std::nullopt)), "a;b;;c;");
  EXPECT_EQ(parts(split(Text("a,b,c", true), ",", 1)), "a;b,c;");
  EXPECT_EQ(parts(split(Text("", true), ",", std::nullopt)), ";");
  EXPECT_EQ(parts(split_lines(Text("a\nb\r\nc\u2028d\n", true))), "a;b;c;d;");
  EXPECT_EQ(parts(split_lines(Text("\n", true))), ";");
}

TEST(JinjaText, ReplacesAnEmptyTextBetweenCharacters) {
  EXPECT_EQ(replace(Text("éa", true), "", Text("-", true), 99).bytes(), "-é-a-");
  EXPECT_EQ(replace(Text("aaa", true), "a", Text("b", true), 2).bytes(), "bba");
}

}  // namespace
}  // namespace plimsoll::jinja
