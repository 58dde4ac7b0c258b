#include "shared/memory/foreign_log/python_literal.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

std::string text_of(const PythonArguments& found, std::string_view name) {
  for (const auto& [key, value] : found.values) {
    if (key == name) return python_value_text(value);
  }
  return "(absent)";
}

TEST(PythonLiteral, KeywordsKeepTheirTypesAndOrder) {
  const PythonArguments found = parse_python_arguments(
      "model_path='/m', tp_size=8, mem_fraction_static=0.55, trust_remote_code=True, "
      "kv_cache_dtype=\"auto\", max_total_tokens=None, x=-1.5e-3) trailing");
  EXPECT_TRUE(found.is_whole);
  ASSERT_EQ(found.values.size(), 7U);
  EXPECT_EQ(found.values[0].first, "model_path");
  EXPECT_TRUE(found.values[1].second.is_integer());
  EXPECT_EQ(found.values[2].second.as_double(), 0.55);
  EXPECT_TRUE(found.values[3].second.as_bool());
  EXPECT_TRUE(found.values[5].second.is_null());
  EXPECT_EQ(text_of(found, "mem_fraction_static"), "0.55");
  EXPECT_EQ(text_of(found, "max_total_tokens"), "None");
  EXPECT_EQ(text_of(found, "trust_remote_code"), "True");
}

TEST(PythonLiteral, StringsMayHoldEscapesQuotesAndCommas) {
  const PythonArguments found = parse_python_arguments(
      R"(a='it\'s, (b=2)', b="x\ty\n\x41\u00e9\U0001F600", c='', d=r'raw', e=b'\x00'))");
  EXPECT_EQ(text_of(found, "a"), "it's, (b=2)");
  EXPECT_EQ(text_of(found, "b"), "x\ty\nA\xC3\xA9\xF0\x9F\x98\x80");
  EXPECT_EQ(text_of(found, "c"), "");
  EXPECT_EQ(text_of(found, "d"), "raw");
  EXPECT_EQ(found.values.size(), 5U);
}

TEST(PythonLiteral, NestedDictsListsAndCallsAreOneValue) {
  const PythonArguments found = parse_python_arguments(
      "json={'a': {'b': [1, 2, (3,)]}, 'c': None}, bs=[1, 2, 4], ports={1, 2}, "
      "spec=SpeculativeConfig(method='mtp', num_spec_tokens=3), dtype=torch.bfloat16, "
      "mode=<CUDAGraphMode.FULL: (2, 1)>, path=PosixPath('/x'), last=1)");
  EXPECT_TRUE(found.is_whole);
  EXPECT_EQ(text_of(found, "json"), R"({"a":{"b":[1,2,[3]]},"c":null})");
  EXPECT_EQ(text_of(found, "bs"), "[1,2,4]");
  EXPECT_EQ(text_of(found, "ports"), "[1,2]");
  EXPECT_EQ(text_of(found, "spec"),
            R"({"type":"SpeculativeConfig","method":"mtp","num_spec_tokens":3})");
  EXPECT_EQ(text_of(found, "dtype"), "torch.bfloat16");
  EXPECT_EQ(text_of(found, "mode"), "<CUDAGraphMode.FULL: (2, 1)>");
  EXPECT_EQ(text_of(found, "path"), "PosixPath('/x')");
  EXPECT_EQ(text_of(found, "last"), "1");
}

TEST(PythonLiteral, ADictIsReadLikeKeywords) {
  const PythonArguments found = parse_python_arguments(
      "'model_tag': '~/m', 'max_model_len': 262144, 'override': {'top_p': 0.95}, "
      "'served_model_name': ['a'], 'gpu_memory_utilization': 0.85}");
  EXPECT_TRUE(found.is_whole);
  EXPECT_EQ(text_of(found, "max_model_len"), "262144");
  EXPECT_EQ(text_of(found, "served_model_name"), R"(["a"])");
  EXPECT_EQ(text_of(found, "gpu_memory_utilization"), "0.85");
}

TEST(PythonLiteral, BareWordsMayHoldSlashesAndColons) {
  const PythonArguments found = parse_python_arguments(
      "served_model_name=Qwen/Qwen3-8B, url=tcp://10.0.0.1:2345, load_format=auto, "
      "device_config=cuda");
  EXPECT_EQ(text_of(found, "served_model_name"), "Qwen/Qwen3-8B");
  EXPECT_EQ(text_of(found, "url"), "tcp://10.0.0.1:2345");
  EXPECT_EQ(text_of(found, "device_config"), "cuda");
}

TEST(PythonLiteral, WhatIsCutShortKeepsWhatCameBefore) {
  const std::string whole = "a=1, b='text', c={'k': [1, 2]}, d=Name(x=1, y='z'), e=2)";
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const PythonArguments found = parse_python_arguments(whole.substr(0, length));
    EXPECT_EQ(text_of(found, "a"), length < 3 ? length < 2 ? "(absent)" : "None" : "1") << length;
  }
  EXPECT_FALSE(parse_python_arguments("a=1, b='te").is_whole);
  EXPECT_FALSE(parse_python_arguments("a=1, b=[1, 2").is_whole);
  EXPECT_EQ(text_of(parse_python_arguments("a=1, b='te"), "b"), "te");
}

TEST(PythonLiteral, DepthNamesAndLengthsAreBounded) {
  const PythonArguments deep = parse_python_arguments("a=" + std::string(100'000, '[') + ", b=1");
  EXPECT_LE(deep.values.size(), 2U);
  const PythonArguments wide =
      parse_python_arguments("a='" + std::string(1 << 20, 'x') + "', b=2)");
  EXPECT_EQ(text_of(wide, "b"), "2");
  EXPECT_LE(text_of(wide, "a").size(), kValueTextMax + 3);
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "k" + std::to_string(i) + "=1, ";
  EXPECT_EQ(parse_python_arguments(many).values.size(), 1000U);
}

TEST(PythonLiteral, ARepeatedNameKeepsTheLastAndNonsenseIsPassedOver) {
  const PythonArguments found = parse_python_arguments("a=1, ?!, =, 'x', a=2, b=3)");
  EXPECT_EQ(text_of(found, "a"), "2");
  EXPECT_EQ(text_of(found, "b"), "3");
}

}  // namespace
}  // namespace plimsoll
