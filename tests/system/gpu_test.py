"""GPUs from the launch to the answer, over libraries of the tests that stand where NVIDIA's do: LD_LIBRARY_PATH puts
them first, as it would any other version of the driver."""
import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import unittest

from deployment import BUILD, SLOW, Deployment, SystemTest, tiny_model, wait_until

PROMPTS = ["the ship carries a load line", "salt water", "says how much is safe in summer and in winter, fresh and"]
SMALL = ("--context-length", 256, "--max-running-requests", 4, "--chunked-prefill-size", 32)
DRIVER = {"LD_LIBRARY_PATH": str(BUILD / "drivers")}
SECOND_GPU = "GPU-01112131-4151-6171-8191-a1b1c1d1e1f1"
GRANULE = 2 << 20  # in which the driver gives memory
IPC_BUFFER = 24 << 20
TOLERANCE = 0.2  # in logprobs: see cuda_host_test.py


def has_kernels():
    done = subprocess.run([BUILD / "plimsoll", "version", "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["cuda"]


def answers(server):
    def ask(prompt):
        choice = server.completion(prompt=prompt, max_tokens=8, temperature=0, logprobs=1,
                                   ignore_eos=True)["choices"][0]
        return choice["text"], choice["logprobs"]["token_logprobs"]

    with concurrent.futures.ThreadPoolExecutor(len(PROMPTS)) as pool:
        return list(pool.map(ask, PROMPTS))


class Gpu(SystemTest):
    def setUp(self):
        if not (BUILD / "drivers/libcuda.so.1").exists() or not has_kernels():
            self.skipTest("this build has no kernels for GPUs, or no driver for tests")
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.model = tiny_model(self.folder.name, seed=5, type="Q4_1")

    def test_a_gpu_serves_with_the_bits_of_the_host_executor_and_measures_its_memory(self):
        with Deployment(self.model, *SMALL, "--devices", "cuda:host") as server:
            want = answers(server)
        with Deployment(self.model, *SMALL, environment=DRIVER) as server:
            self.assertEqual(answers(server), want)
            (rank,) = server.workers()
            self.assertIn("cuda on Host Executor GPU (SM 9.0)", str(server.status()))
            self.assertEqual(rank["memory"]["source"], "cuMemGetInfo")
            rows = {row["term"]: row for row in rank["memory"]["rows"]}
            self.assertEqual(rows["context"]["measured"], 32 << 20)
            for term in ("weights", "tables", "activations", "workspace", "logits"):
                self.assertLessEqual(abs(rows[term]["measured"] - rows[term]["planned"]), GRANULE, term)
            self.assertGreater(rows["graphs"]["measured"], 0)
            plan = server.cli("plan", "--model", self.model, "--devices", "cuda:1", "--json")
            self.assertEqual(json.loads(plan.stdout)["ranks"][0]["device_uuid"], SECOND_GPU)
            os.kill(rank["pid"], signal.SIGKILL)
            wait_until("another worker", lambda: server.workers()[0]["pid"] not in (0, rank["pid"]))
            server.wait_serving()
            self.assertEqual(answers(server), want)

    def test_a_gpu_that_fails_is_left_out_and_no_request_is_lost(self):
        xids = pathlib.Path(self.folder.name, "xids")
        xids.touch()

        def fail(gpu):
            with open(xids, "a", encoding="ascii") as file:
                file.write(f"{gpu} 79\n")

        hang = pathlib.Path(self.folder.name, "hang")
        with Deployment(self.model, *SMALL, "--devices", "cuda", "--dp", 2,
                        environment={**DRIVER, "FAKE_NVML_XIDS": str(xids), "FAKE_NVML_HANG": str(hang)}) as server:
            want = answers(server)
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                asked = pool.submit(lambda: [answers(server) for _ in range(4)])
                hang.touch()
                fail(1)
                wait_until("it is in quarantine", lambda: server.status()["quarantine"])
                # What else there is nobody says, and nobody waits for that.
                self.assertEqual(answers(server), want)
                self.assertEqual(len(server.status()["replicas"]), 2)
                hang.unlink()
                wait_until("one replica is left", lambda: len(server.status()["replicas"]) == 1)
                self.assertEqual(asked.result(), [want] * 4)
            (lost,) = server.status()["quarantine"]
            self.assertEqual(lost["device"], SECOND_GPU)
            self.assertIn("Xid 79: it has fallen off the bus; it needs reset", lost["reason"])
            self.assertIn(f"quarantine: {SECOND_GPU} (Host Executor GPU): Xid 79", server.cli("status").stdout)
            self.assertEqual(server.log().count("1 of 2 replicas go on"), 1)

            done = server.cli("restart")
            self.assertEqual(done.returncode, 75)
            self.assertIn("the driver has lost GPU 1: it needs reset", done.stderr)
            self.assertEqual(len(server.status()["quarantine"]), 1)
            xids.write_text("")  # it is reset
            done = server.cli("restart")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(len(server.status()["replicas"]), 2)
            self.assertEqual(server.status()["quarantine"], [])
            self.assertEqual(answers(server), want)
            fail(0)
            fail(1)
            wait_until("nothing is left", lambda: server.status()["state"] == "failed")
            self.assertIn("one replica needs 1, and 0 are left; in quarantine: GPU-", server.status()["reason"])
            self.assertLessEqual(sum(" E " in line for line in server.log().splitlines()), 12, server.log())

    def test_what_a_driver_cannot_do_is_said_once(self):
        for variables, code, words in (
                ({"FAKE_CUDA_VERSION": "12080"}, 78, "it is for CUDA 12.8 and this build needs 13.0"),
                ({"FAKE_CUDA_FAIL": "cuModuleLoadData 209"}, 78, "CUDA_ERROR_NO_BINARY_FOR_GPU")):
            server = Deployment(self.model, *SMALL, "--devices", "cuda:0", environment={**DRIVER, **variables})
            server.launch()
            self.assertEqual(server.daemon.wait(30 * SLOW), code)
            self.assertIn(words, server.log())
            server.stop(check=False)

    def check_table(self, server, backend, algorithms, is_kept):
        table = server.status()["replicas"][0]["collectives"]
        self.assertEqual((table["backend"], table["is_kept"]), (backend, is_kept))
        self.assertEqual({test["algorithm"] for test in table["tests"]}, algorithms)
        for test in table["tests"]:
            self.assertGreaterEqual(len(test["sizes"]), 1)
            for size in test["sizes"]:
                self.assertEqual((size["state"], size["wrong"]), ("right", 0), test)
                self.assertGreater(size["us"], 0)

    def test_two_ranks_add_up_over_each_others_memory_as_the_cpu_does(self):
        with Deployment(self.model, *SMALL, "--cpu-path", "scalar") as server:
            want = answers(server)
        with Deployment(self.model, *SMALL, "--devices", "cuda:host", "--tp", 2) as server:
            self.assertIn("adds up by fused", str(server.status()))
            on_host = answers(server)
            self.check_table(server, "fused", {"one-shot", "two-shot", "staged"}, is_kept=False)
            self.assertIn("staged", server.cli("status", "--collectives").stdout)
        for (want_text, want_values), (text, values) in zip(want, on_host):
            self.assertEqual(text, want_text)
            for a, b in zip(values, want_values):
                self.assertAlmostEqual(a, b, delta=TOLERANCE)
        with Deployment(self.model, *SMALL, "--devices", "cuda", "--tp", 2, environment=DRIVER) as server:
            self.assertEqual(answers(server), on_host, "other bits through the driver")
            ranks = server.workers()
            for rank in ranks:
                rows = {row["term"]: row for row in rank["memory"]["rows"]}
                self.assertEqual(rows["collective"]["measured"], IPC_BUFFER + GRANULE)
            os.kill(ranks[1]["pid"], signal.SIGKILL)
            wait_until("other workers", lambda: server.workers()[1]["pid"] not in (0, ranks[1]["pid"]))
            server.wait_serving()
            self.assertEqual(answers(server), on_host)
            self.check_table(server, "fused", {"one-shot", "two-shot", "staged"}, is_kept=True)
        with Deployment(self.model, *SMALL, "--devices", "cuda", "--tp", 2, "--collective", "nccl",
                        environment=DRIVER) as server:
            self.assertIn("adds up by nccl", str(server.status()))
            self.check_table(server, "nccl", {"as it chooses"}, is_kept=False)
            for rank in server.workers():
                rows = {row["term"]: row for row in rank["memory"]["rows"]}
                self.assertGreater(rows["graphs"]["measured"], 0, "its steps are recorded")
            self.assertEqual(answers(server), on_host, "sums of two are the same in any order")


if __name__ == "__main__":
    unittest.main()
