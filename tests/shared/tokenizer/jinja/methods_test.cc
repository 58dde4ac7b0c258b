#include "shared/tokenizer/jinja/methods.h"

#include <gtest/gtest.h>

#include "tests/shared/tokenizer/jinja/evaluate.h"

namespace plimsoll::jinja {
namespace {

TEST(JinjaMethods, OfTexts) {
  EXPECT_EQ(evaluate("'</think>a</think>b'.split('</think>')[-1].lstrip('\\n')"), "b");
  EXPECT_EQ(evaluate("'abc'.startswith(('x', 'ab'))"), "True");
  EXPECT_EQ(evaluate("'{}{{{}}}{n}'.format(1, 2, n=3)"), "1{2}3");
  EXPECT_EQ(evaluate("'{:>5}'.format(1)"),
            "line 1: format: the field ':>5' is not supported or has no value");
  EXPECT_EQ(evaluate("'a'.split('')"), "line 1: split needs a separator that is not empty");
  EXPECT_EQ(evaluate("'a'.replace('b')"), "line 1: argument 'new' is missing");
}

TEST(JinjaMethods, OfListsChangeThem) {
  EXPECT_EQ(run_template("{% set l = [1] %}{% set _ = l.append(2) %}{% set _ = l.insert(0, 0) %}"
                         "{% set _ = l.extend([3]) %}{{ l.pop() }}{{ l.pop(0) }}{{ l }}"),
            "30[1, 2]");
  EXPECT_EQ(evaluate("[].pop()"), "line 1: pop: the list has no such item");
}

TEST(JinjaMethods, OfDicts) {
  EXPECT_EQ(evaluate("{'a': 1}.get('b', 2)"), "2");
  EXPECT_EQ(evaluate("{'a': 1}.get('b')"), "None");
  EXPECT_EQ(
      run_template("{% set d = {'a': 1, 'b': 2} %}{{ d.pop('a') }}{{ d }}{{ d.pop('z', 9) }}"),
      "1{'b': 2}9");
  EXPECT_EQ(
      run_template(
          "{% set d = {} %}{% set _ = d.update({'a': 1}, b=2) %}{{ d.setdefault('a', 5) }}{{ d }}"),
      "1{'a': 1, 'b': 2}");
}

TEST(JinjaMethods, UnknownOnesAreUndefined) {
  EXPECT_EQ(evaluate("'a'.frobnicate()"), "line 1: 'frobnicate' is undefined");
}

}  // namespace
}  // namespace plimsoll::jinja
