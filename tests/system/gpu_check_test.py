"""tools/gpu-check: what it packs runs elsewhere, needs nothing of the build, and reports part by part."""
import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from deployment import BUILD, SLOW, SystemTest, tiny_model

TOOL = pathlib.Path(__file__).parents[2] / "tools/gpu-check"


class GpuCheck(SystemTest):
    def test_what_is_packed_checks_the_host_executor_and_reports(self):
        if SLOW != 1:
            self.skipTest("programs of a sanitizer need its libraries where they run")
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            subprocess.run([TOOL, "pack", "--build", BUILD, "--model", tiny_model(folder, seed=5, type="Q4_1"),
                            "--layers", "1", "--output", folder / "packed"], check=True, capture_output=True, timeout=60)
            there = shutil.move(folder / "packed", folder / "elsewhere")
            done = subprocess.run([there / "gpu-check", "run", "--device", "cuda:host", "--only", "kernels", "--only",
                                   "serve", "--report", folder / "report"], capture_output=True, text=True, cwd="/",
                                  env={"PATH": "/usr/bin:/bin", "TMPDIR": str(folder)}, timeout=120)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            results = json.loads((folder / "report/report.json").read_text())
            self.assertEqual([(one["part"], one["outcome"]) for one in results],
                             [("device", "passed"), ("kernels", "passed"), ("serve", "passed")])
            self.assertIn("## serve: passed", (folder / "report/report.md").read_text())

            # No GPU here: that is said, and the run goes on.
            done = subprocess.run([there / "gpu-check", "run", "--only", "kernels", "--report", folder / "report"],
                                  capture_output=True, text=True, cwd="/",
                                  env={"PATH": "/usr/bin:/bin", "TMPDIR": str(folder), "LD_LIBRARY_PATH": "/nowhere"},
                                  timeout=60)
            if "kernels: passed" not in done.stdout:  # but where there is one
                self.assertEqual(done.returncode, 1)
                self.assertIn("open the NVIDIA driver", done.stdout)


if __name__ == "__main__":
    unittest.main()
