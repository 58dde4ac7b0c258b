"""Each rule of tools/lint finds what it is for: one violation in a small tree of its own, and no more."""
import importlib.machinery
import importlib.util
import pathlib
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]

# A tree without a finding.
TREE = {
    ".clang-format": (SOURCE / ".clang-format").read_text(),
    "README.md": "# Tree\n\n```\ntools/up --port 0\nbuild/release/plimsoll status  # asks\n```\n\nSee `tools/up`.\n",
    "tools/up": "#!/bin/sh\nexec true\n",
    "tools/cli/CMakeLists.txt": "add_program(plimsoll cli_core)\n",
    "tools/cli/verb_status.cc": "int status() { return 0; }\n",
    "tests/untested.txt": "tools/cli/verb_*.cc run in the tests of the tool\n",
    "shared/base/text.h": "// Text: words and letters.\n#pragma once\n\nint letters();\n",
    "shared/base/text.cc": '#include "shared/base/text.h"\n\nint letters() { return 26; }\n',
    "tests/shared/base/text_test.cc": '#include "shared/base/text.h"\n\n#include <gtest/gtest.h>\n\n'
                                      "TEST(Text, HasLetters) { EXPECT_EQ(letters(), 26); }\n",
    "configs/default.conf": "# Generated from the table of options.\n",
    "configs/reference.md": "Generated from the table of options.\n",
    "tests/shared/options/option_print_test.cc": "// default.conf and reference.md\nTEST(OptionPrint, IsCurrent) {}\n",
}


class LintTest(unittest.TestCase):
    def findings(self, changes=None, removed=()):
        """What lint says of TREE with these files written over it and those removed."""
        loader = importlib.machinery.SourceFileLoader("lint", str(SOURCE / "tools/lint"))
        lint = importlib.util.module_from_spec(importlib.util.spec_from_loader("lint", loader))
        loader.exec_module(lint)
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder).resolve()
            subprocess.run(["git", "init", "--quiet", root], check=True)
            for name, text in {**TREE, **(changes or {})}.items():
                if name not in removed:
                    (root / name).parent.mkdir(parents=True, exist_ok=True)
                    (root / name).write_text(text)
            lint.ROOT = root
            lint.check_all(fix=False)
        return lint.findings

    def assert_finds(self, expected, changes=None, removed=()):
        found = self.findings(changes, removed)
        self.assertEqual(len(found), 1, found)
        self.assertIn(expected, found[0])

    def with_line(self, line):
        return {"shared/base/text.cc": f'#include "shared/base/text.h"\n\n{line}\nint letters() {{ return 26; }}\n'}

    def with_include(self, include, name="shared/base/text.cc"):
        return {name: f'#include "shared/base/text.h"\n\n#include {include}\n\nint letters() {{ return 26; }}\n'}

    def with_block(self, text):
        return {"README.md": f"# Tree\n\n```\n{text}\n```\n"}

    def test_a_clean_tree_has_no_finding(self):
        self.assertEqual(self.findings(), [])

    def test_a_lower_folder_may_not_include_a_higher_one(self):
        for include in ('"daemon/daemon.h"', '"shared/model/gguf.h"', "<worker/worker.h>"):
            with self.subTest(include):
                self.assert_finds("shared/base may not include", self.with_include(include))

    def test_a_single_header_may_be_allowed_and_its_neighbours_not(self):
        tree = {"kernels/half.h": '// Half: of it.\n#pragma once\n\n#include "shared/model/dtype.h"\n'}
        self.assertEqual(self.findings(tree), [])
        self.assert_finds("kernels may not include shared/model/gguf.h",
                          {"kernels/half.h": tree["kernels/half.h"].replace("dtype", "gguf")})

    def test_a_folder_without_a_row_is_found(self):
        self.assert_finds("no row in MAY_INCLUDE", {"shared/extra/more.h": "// More: of it.\n#pragma once\n"})

    def test_heavy_headers_have_one_home(self):
        for include in ("<spdlog/spdlog.h>", "<boost/program_options.hpp>", "<zmq.h>", "<zmq.hpp>", "<regex>",
                        "<nlohmann/json.hpp>", "<boost/asio.hpp>", "<boost/beast/http.hpp>"):
            with self.subTest(include):
                self.assert_finds("is heavy", self.with_include(include))
                test = '#include "shared/base/text.h"\n\n#include %s\n\nTEST(Text, HasLetters) {}\n' % include
                self.assert_finds("is heavy", {"tests/shared/base/text_test.cc": test})

    def test_a_heavy_header_is_free_at_home(self):
        self.assertEqual(self.findings({
            "router/http/server.h": "// Server: of it.\n#pragma once\n\n#include <boost/asio.hpp>\n"}), [])

    def test_a_source_needs_a_test(self):
        self.assert_finds("no test: tests/shared/base/text_test.cc", removed=["tests/shared/base/text_test.cc"])
        self.assert_finds("holds no test", {"tests/shared/base/text_test.cc": '#include "shared/base/text.h"\n'})

    def test_only_a_file_named_main_needs_none(self):
        self.assertEqual(self.findings({"daemon/main.cc": "int main() { return 0; }\n"}), [])
        self.assert_finds("no test: tests/daemon/domain_test.cc", {"daemon/domain.cc": "int domain() { return 0; }\n"})

    def test_an_exception_names_a_file_and_a_reason(self):
        row = TREE["tests/untested.txt"]
        self.assert_finds("does not exist", {"tests/untested.txt": row + "daemon/gone.cc it went\n"})
        self.assert_finds("needs a reason", {"tests/untested.txt": row + "shared/base/text.cc\n"})

    def test_a_header_says_what_it_is(self):
        for first in ("// text and words", "// Text, in words.", "#include <string>"):
            with self.subTest(first):
                self.assert_finds("a header begins with",
                                  {"shared/base/text.h": f"{first}\n#pragma once\n\nint letters();\n"})
        self.assert_finds("has #pragma once", {"shared/base/text.h": "// Text: words.\n\nint letters();\n"})

    def test_the_own_header_comes_first(self):
        self.assert_finds("the first include is its own header", {
            "shared/base/text.cc": "#include <string>\n\nint letters() { return 26; }\n"})

    def test_long_files_and_long_lines_are_found(self):
        self.assert_finds("501 lines", self.with_line("// And a line.\n" * 497 + "// The last."))
        self.assert_finds("101 columns", {"shared/base/text.h": TREE["shared/base/text.h"] + "// " + "x" * 98 + "\n"})
        self.assert_finds("501 lines", {"tests/system/long_test.py": "pass\n" * 501})

    def test_a_todo_names_an_issue(self):
        self.assert_finds("a TODO names its issue", self.with_line("// TODO: count them."))
        self.assert_finds("a TODO names its issue", {"tools/up": "#!/bin/sh\n# FIXME\nexec true\n"})
        self.assertEqual(self.findings(self.with_line("// TODO(#12): count them.")), [])

    def test_code_in_comments_is_found(self):
        for line in ("// return 25;", "// int count = 3;", "// count();", "// if (count) {", "// }", "/* count += 1; */",
                     "// std::string word;", "// list.push_back(word);", "#if 0\n#endif"):
            with self.subTest(line):
                self.assert_finds("code that is switched off", self.with_line(line))

    def test_prose_and_formulas_in_comments_are_not_code(self):
        for line in ("// The letters; more of them follow.", "// y = x * w", "// {\"a\": 1}", "// A list (of words);"):
            with self.subTest(line):
                self.assertEqual(self.findings(self.with_line(line)), [])

    def test_nothing_sleeps(self):
        self.assert_finds("nothing sleeps", self.with_line("void rest() { std::this_thread::sleep_for(one); }"))
        self.assert_finds("nothing sleeps", {"tests/system/slow_test.py": "time.sleep(1)\n"})
        self.assert_finds("nothing sleeps", {"tools/up": "#!/bin/sh\nwhile true; do sleep 1; done\n"})

    def test_commands_of_the_readme_exist(self):
        self.assert_finds("tools/down does not exist", self.with_block("tools/down"))
        self.assert_finds("no verb dance", self.with_block("build/release/plimsoll dance"))
        self.assert_finds("no program is named plimsollx", self.with_block("build/release/plimsollx"))
        self.assert_finds("neither ours nor", self.with_block("make all"))
        self.assert_finds("tools/down does not exist", {"CONTRIBUTING.md": "Call `tools/down` last.\n"})
        self.assert_finds("not closed", {"README.md": "```\ntools/up\n"})

    def test_pictures_are_no_commands(self):
        self.assertEqual(self.findings(self.with_block("client ──▶ router")), [])

    def test_a_generated_file_is_compared_by_a_test(self):
        self.assert_finds("generated, but no row", {"configs/more.conf": "# Generated from a table.\n"})
        self.assert_finds("does not compare it", {
            "tests/shared/options/option_print_test.cc": "// reference.md\nTEST(OptionPrint, IsCurrent) {}\n"})

    def test_sources_are_formatted(self):
        self.assert_finds("not formatted", {"shared/base/text.h": "// Text: words.\n#pragma once\n\nint  letters( );\n"})


if __name__ == "__main__":
    unittest.main()
