"""tools/up with programs that only play their part: what it starts it ends, and options go where they belong."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]

# Ends at once with the code in the file `fails`, once somebody waits for it; else when it has been asked.
DAEMON = """#!/bin/bash
cd "$(dirname "$0")/../.."
echo "$@" >daemon
until [ -e waiter ]; do read -r -t 0.02 _ <>fifo; done
[ ! -e fails ] || exit "$(cat fails)"
until [ -e asked ]; do read -r -t 0.02 _ <>fifo; done
exit 0
"""

CLI = """#!/bin/sh
cd "$(dirname "$0")/../.."
echo "$@" >>calls
case "$1 $2" in
  "status --wait") echo $$ >waiter; [ ! -e fails ] || exec tail -f /dev/null ;;
  "status --json") echo '  "url": "http://127.0.0.1:1",' ;;
  "chat "*) echo "an answer"; : >asked ;;
esac
"""


class UpTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "tools").mkdir()
        shutil.copy(SOURCE / "tools/up", self.root / "tools/up")
        self.write("build/release/build.ninja", "")
        self.write("tools/install-deps", "#!/bin/sh\n")
        self.write("bin/cmake", "#!/bin/sh\n")
        self.write("build/release/plimsolld", DAEMON)
        self.write("build/release/plimsoll", CLI)
        os.mkfifo(self.root / "fifo")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def up(self, *options):
        path = f"{self.root / 'bin'}:{os.environ['PATH']}"
        return subprocess.run([self.root / "tools/up", "--model", "m.gguf", *options], capture_output=True, text=True,
                              timeout=30, env={**os.environ, "PATH": path, "TMPDIR": str(self.root)})

    def test_a_daemon_that_ends_early_leaves_nobody_waiting(self):
        self.write("fails", "78")
        done = self.up()
        self.assertEqual(done.returncode, 78, done.stderr)
        waiter = int((self.root / "waiter").read_text())
        self.assertFalse(pathlib.Path(f"/proc/{waiter}").exists(), "`plimsoll status --wait` is still there")
        self.assertEqual(list(self.root.glob("plimsoll-up.*")), [])

    def test_a_runtime_folder_that_is_given_is_the_one_that_is_asked(self):
        for options in (["--runtime-dir", "/given"], ["--runtime-dir=/given"]):
            for left in ("waiter", "asked", "calls"):
                (self.root / left).unlink(missing_ok=True)
            done = self.up(*options)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("an answer", done.stdout)
            calls = (self.root / "calls").read_text().splitlines()
            self.assertEqual(len(calls), 3, calls)
            for call in calls:
                self.assertTrue(call.endswith("--runtime-dir /given"), call)
            self.assertIn("--temperature 0", calls[-1])
            self.assertIn("/given", (self.root / "daemon").read_text())


if __name__ == "__main__":
    unittest.main()
