"""tools/gpu-check goes on with the kernel checks after a device fault and after a hang, and says which they were."""
import contextlib
import importlib.machinery
import importlib.util
import io
import pathlib
import tempfile
import time
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]

# The third check ends the process, the fifth hangs, the sixth fails by what the device says.
FAKE = """#!/usr/bin/env python3
import json, os, sys
for i in range(int(sys.argv[sys.argv.index("--from") + 1]), 8):
    print(json.dumps({"begins": f"check {i}", "index": i}), flush=True)
    if i == 3:
        os._exit(7)
    if i == 5:
        os.read(os.pipe()[0], 1)  # for ever
    error = "launch failed" if i == 6 else ""
    print(json.dumps({"check": f"check {i}", "index": i, "passed": not error, "worst": 0.1, "tolerance": 1,
                      "error": error}), flush=True)
    if error:
        sys.exit(1)
print(json.dumps({"finished": True}))
"""


class FakeRun:
    is_host, device, environment = False, "cuda", None

    def __init__(self, folder):
        self.file = pathlib.Path(folder) / "gpu_check"
        self.file.write_text(FAKE)
        self.file.chmod(0o755)
        self.end = time.monotonic() + 50

    def program(self, _):
        return self.file

    def left(self):
        return self.end - time.monotonic()


class GpuCheckTest(unittest.TestCase):
    def test_the_checks_after_a_fault_and_a_hang_are_run(self):
        loader = importlib.machinery.SourceFileLoader("gpu_check", str(SOURCE / "tools/gpu-check"))
        tool = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
        loader.exec_module(tool)
        tool.CHECK_SECONDS = 1
        said = io.StringIO()
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(said):
            with self.assertRaises(tool.Failed) as failed:
                tool.part_kernels(FakeRun(folder))
        self.assertIn("check 3: ended with 7", str(failed.exception))
        self.assertIn("check 5: not done after 1 s", str(failed.exception))
        self.assertIn("check 6: launch failed", str(failed.exception))
        self.assertNotIn("not run", str(failed.exception))
        for passed in (0, 1, 2, 4, 7):
            self.assertIn(f"{passed} ok     check {passed}: 0.1", said.getvalue())


if __name__ == "__main__":
    unittest.main()
