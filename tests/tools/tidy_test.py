"""tools/tidy reads a source again when something that it depends on has changed, and only then."""
import contextlib
import importlib.machinery
import importlib.util
import io
import pathlib
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]

# Says which files it was given; every line with "bad" in one of them is a finding.
FAKE = """#!/bin/sh
[ "$1" = --version ] && { echo "fake 1"; exit 0; }
for file; do :; done
echo "$file" >>"$(dirname "$0")/calls"
grep -n bad "$file" && exit 1
exit 0
"""


class TidyTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        loader = importlib.machinery.SourceFileLoader("tidy", str(SOURCE / "tools/tidy"))
        self.tidy = importlib.util.module_from_spec(importlib.util.spec_from_loader("tidy", loader))
        loader.exec_module(self.tidy)
        self.tidy.ROOT = self.root
        self.write("clang-tidy", FAKE)
        (self.root / "clang-tidy").chmod(0o755)
        self.write(".clang-tidy", "Checks: '*'\n")
        self.write("base/word.h", '#include "base/letter.h"\n')
        self.write("base/letter.h", "int letter();\n")
        self.write("base/word.cc", '#include "base/word.h"\n')
        self.write("base/other.cc", "int other() { return 1; }\n")
        self.commands = {self.root / "base/word.cc": "c++ word.cc", self.root / "base/other.cc": "c++ other.cc"}

    def write(self, name, text):
        (self.root / name).parent.mkdir(exist_ok=True)
        (self.root / name).write_text(text)

    def examine(self):
        """Which files clang-tidy was given, how many had findings, and what was printed."""
        (self.root / "calls").write_text("")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            bad = self.tidy.examine(str(self.root / "clang-tidy"), list(self.commands), self.commands)
        names = sorted(pathlib.Path(line).name for line in (self.root / "calls").read_text().splitlines())
        return names, bad, printed.getvalue()

    def test_what_was_clean_is_not_read_again(self):
        self.assertEqual(self.examine()[:2], (["other.cc", "word.cc"], 0))
        self.assertEqual(self.examine()[:2], ([], 0))

    def test_a_header_far_below_makes_its_sources_new(self):
        self.examine()
        self.write("base/letter.h", "int letters();\n")
        self.assertEqual(self.examine()[0], ["word.cc"])

    def test_other_flags_and_other_checks_make_sources_new(self):
        self.examine()
        self.commands[self.root / "base/other.cc"] += " -O2"
        self.assertEqual(self.examine()[0], ["other.cc"])
        self.write(".clang-tidy", "Checks: '-*'\n")
        self.assertEqual(self.examine()[0], ["other.cc", "word.cc"])

    def test_a_finding_is_printed_each_time_until_it_is_mended(self):
        self.write("base/other.cc", "int bad() { return 1; }\n")
        for _ in range(2):
            names, bad, printed = self.examine()
            self.assertIn("other.cc", names)
            self.assertEqual(bad, 1)
            self.assertIn("int bad()", printed)
        self.write("base/other.cc", "int good() { return 1; }\n")
        self.assertEqual(self.examine()[:2], (["other.cc"], 0))


if __name__ == "__main__":
    unittest.main()
