"""Other processes hold the memory that ranks need: they are named before anything is planned on top of them."""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from deployment import BUILD, Deployment, SystemTest, tiny_model, wait_until

TOTAL = 8 << 30
HOG = 640 << 20  # more than a sixteenth of that


def hog(size):
    """A process that holds that much and says so."""
    code = f"'neighbour-of-the-test'; import sys; b=bytearray({size}); b[::4096]=b'x'*len(b[::4096]); print('there',flush=True); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "there\n"
    return child


class Neighbours(SystemTest):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="plimsoll-models-"))
        self.meminfo = self.folder / "meminfo"
        self.model = tiny_model(self.folder, seed=1)
        self.hog = hog(HOG)

    def tearDown(self):
        self.let_go()
        shutil.rmtree(self.folder, ignore_errors=True)

    def let_go(self):
        self.hog.communicate()

    def available(self, size):
        part = self.meminfo.with_suffix(".new")
        part.write_text(f"MemTotal: {TOTAL >> 10} kB\nMemFree: {size >> 10} kB\nMemAvailable: {size >> 10} kB\n")
        part.rename(self.meminfo)

    def deployment(self):
        libraries = [str(BUILD / "fake_meminfo.so")]
        if os.environ.get("LD_PRELOAD"):
            libraries.append(os.environ["LD_PRELOAD"])
        return Deployment(self.model, environment={
            "LD_PRELOAD": ":".join(libraries), "FAKE_MEMINFO": str(self.meminfo),
            "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"})

    def named(self, log):
        return re.findall(rf"PID {self.hog.pid} \([^:)]+: [^\n]*neighbour-of-the-test[^\n]*\) holds 6\d\d\.\d MiB", log)

    def test_who_holds_much_is_named_also_where_it_fits(self):
        self.available(6 << 30)
        with self.deployment() as server:
            self.assertEqual(len(self.named(server.log())), 1, server.log())

    def test_memory_that_comes_back_is_waited_for(self):
        self.available(8 << 20)
        server = self.deployment().launch()
        wait_until("the holder is named", lambda: self.named(server.log()), 20)
        self.assertNotIn("loading", server.log())  # a worker of another instance may be named
        self.let_go()
        self.available(6 << 30)
        server.wait_serving()
        server.stop()

    def test_memory_that_does_not_come_back_is_refused_with_its_holder(self):
        self.available(8 << 20)
        server = self.deployment().launch()
        code = server.daemon.wait(30)
        log = server.log()
        server.stop()
        self.assertEqual(code, 3, log)
        self.assertEqual(log.count("the plan does not fit: "), 1, log)
        self.assertTrue(self.named(log[log.index("Other processes hold the memory that it would fit in"):]), log)

    def test_a_worker_without_its_daemon_is_named_as_left_over(self):
        self.available(6 << 30)
        orphan = self.folder / "plimsoll-worker"
        orphan.symlink_to(shutil.which("sleep"))
        # Its parent ends at once, and so it is nobody's.
        done = subprocess.run(["sh", "-c", f"{orphan} 60 >/dev/null 2>&1 & echo $!"], capture_output=True, text=True,
                              check=True)
        pid = int(done.stdout)
        try:
            with self.deployment() as server:
                self.assertRegex(server.log(), rf"PID {pid} \([^\n]*left over from an earlier plimsolld\) holds")
        finally:
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    unittest.main()
