"""Simulated devices: a launch of eight ranks through the real daemon, workers, router and messages."""
import json
import os
import pathlib
import re
import shutil
import signal
import tempfile
import time
import unittest

from deployment import SLOW, Deployment, SystemTest, tiny_model, unless_sanitized, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
RANKS = 8
STORY = "weights=72.29GiB,free=94GiB"


def fixed_tokens(prompt, count):
    """What docs/simulation.md promises, as long as ids stay within the vocabulary."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(tokens[-1] + len(tokens))
    return tokens[len(prompt):]


class Simulated(SystemTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="plimsoll-models-"))
        # A block of KV takes 64 KiB of each rank.
        cls.model = tiny_model(cls.folder, seed=1, heads=8, kv_heads=8, head_dim=256)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)

    def simulation(self, **content):
        path = self.folder / f"{self.id().rsplit('.', 1)[1]}.json"
        path.write_text(json.dumps(content))
        return path

    def deployment(self, *options, size="94GiB", **simulation):
        more = ("--simulation", self.simulation(**simulation)) if simulation else ()
        return Deployment(self.model, "--tp", RANKS, "--devices", f"simulated:{size}",
                          "--max-running-requests", 4, *more, *options)

    def check_answer(self, server, prompt, count):
        """The text of an answer is that of the tokens that must come."""
        text = server.completion(prompt, max_tokens=count, ignore_eos=True)["choices"][0]["text"]
        _, expected, _ = server.request("POST", "/detokenize", {"tokens": fixed_tokens(prompt, count)})
        self.assertIn(text, expected.values())

    def kv(self, server):
        return [rank["memory"]["kv"] for rank in server.workers()]

    def test_eight_ranks_answer_fixed_tokens_and_hold_no_memory(self):
        with self.deployment("--kv-prefault") as server:
            workers = server.workers()
            self.assertEqual([rank["device"] for rank in workers], ["simulated, 94.00 GiB"] * RANKS)
            prompt = [65, 66, 67]
            self.check_answer(server, prompt, 5)
            for rank in server.workers():
                memory = rank["memory"]
                self.assertEqual(memory["source"], "simulated device")
                for row in memory["rows"]:
                    self.assertIn(row["measured"], (row["planned"], None), row)
                self.assertEqual(memory["kv"]["touched"], memory["kv"]["committed"])
                self.assertEqual(memory["kv"]["planned"], memory["kv"]["committed"])
                self.assertLess(resident(rank["pid"]), 64 << 20)
            self.assertEqual(server.status()["drift"], [])

    def test_hidden_costs_are_drift_and_kv_shrinks_on_all_ranks_alike(self):
        # 8 GiB of KV are planned in 16 GiB.
        with self.deployment("--max-total-tokens", 4 << 20, size="16GiB", costs=[
                {"term": "context", "bytes": "6GiB"},
                {"term": "neighbour", "bytes": "4GiB", "when": "loading", "ranks": [3]},
                {"term": "lazy buffers", "bytes": "300MiB", "when": "first step", "ranks": [5]},
        ]) as server:
            kv = self.kv(server)
            self.assertEqual(len({one["committed"] for one in kv}), 1, "all ranks have the same")
            self.assertLess(kv[0]["committed"], kv[0]["planned"])
            self.assertGreater(kv[0]["committed"], 1 << 30)
            log = server.log()
            self.assertEqual(len(re.findall(r"drift of context: planned [^,]*, measured 6.00 GiB", log)), 1,
                             "once, not by rank")
            self.assertEqual(log.count("drift of lazy buffers: planned 0 B, measured 300.0 MiB"), 1)
            self.assertEqual(log.count("(other processes hold 4.00 GiB)"), 1)
            self.assertEqual(server.workers()[3]["memory"]["neighbours"], 4 << 30)
            drift = {row["term"]: row["ranks"] for row in server.status()["drift"]}
            self.assertEqual(drift["lazy buffers"], ["0.5"])
            self.assertEqual(drift["context"], [f"0.{rank}" for rank in range(RANKS)])
            self.check_answer(server, [70], 3)

    def test_what_no_longer_fits_is_refused_once(self):
        server = self.deployment(size="16GiB",
                                 costs=[{"term": "neighbour", "bytes": "16GiB", "when": "loaded"}])
        server.launch()
        code = server.daemon.wait(30)
        log = server.log()
        server.stop()
        self.assertEqual(code, 3, log)
        self.assertEqual(log.count("the launch does not fit: now that the weights are loaded"), 1, log)
        self.assertRegex(log, r"0 B free now \(other processes hold 1\d\.\d\d GiB\)")

    def test_a_device_that_is_full_is_said_once_for_all_ranks(self):
        server = self.deployment(size="16GiB", costs=[{"term": "context", "bytes": "17GiB"}])
        server.launch()
        code = server.daemon.wait(30)
        log = server.log()
        server.stop()
        self.assertEqual(code, 3, log)
        self.assertEqual(log.count(" E worker "), 0, log)
        self.assertEqual(log.count("the plan does not fit"), 1, log)
        self.assertIn("rank 0.0 has 0 B free with its context of 17.00 GiB up", log)
        self.assertNotIn("GiB of weights", log, "nothing was loaded for it")

    def test_an_arena_that_overruns_names_the_row_of_the_plan(self):
        server = self.deployment(costs=[{"term": "weights", "bytes": "1GiB", "ranks": [2]}])
        server.launch()
        code = wait_until("it gives up", server.daemon.poll, 60)
        log = server.log()
        server.stop()
        self.assertEqual(code, 1, log)
        self.assertIn('the plan\'s row "weights" has', log)
        # The line about it is written when no process of its replica is left.
        causes = [line for line in log.splitlines() if "7 peers left with it" in line]
        self.assertTrue(causes and all("rank 2 (pid " in line for line in causes), log)

    def test_a_killed_rank_is_started_again_and_the_answer_goes_on(self):
        with self.deployment(step_time="20ms") as server:
            before = server.workers()
            os.kill(before[5]["pid"], signal.SIGKILL)
            wait_until("the replica is restarted",
                       lambda: server.status()["replicas"][0]["incarnation"] != 1
                       and server.status()["state"] == "serving"
                       and {r["state"] for r in server.workers()} == {"ready"}, 30)
            after = server.workers()
            self.assertFalse({r["pid"] for r in before} & {r["pid"] for r in after})
            self.assertIn("rank 5", server.status()["last_fault"]["message"])
            self.check_answer(server, [80], 4)

    @unless_sanitized
    def test_a_slow_load_shows_progress(self):
        server = self.deployment(load_time="2s")
        try:
            server.launch()
            wait_until("part of the weights is there",
                       lambda: 0 < server.status().get("progress", {}).get("done", 0)
                       < server.status().get("progress", {}).get("total", 0), 20)
            server.wait_serving()
            server.stop()
        except BaseException:
            server.stop(check=False)
            raise

    def test_a_simulation_with_a_mistake_is_refused_before_anything_starts(self):
        server = self.deployment(costs=[{"term": "context", "byte": "1GiB"}])
        server.launch()
        code = server.daemon.wait(20)
        log = server.log()
        server.stop()
        self.assertEqual(code, 78, log)
        self.assertIn("costs[0] 'byte' is not one of", log)


class Rehearsal(SystemTest):
    """Kimi-K2.5 on 8 x RTX PRO 6000, of its config.json and the machine's description alone."""

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="plimsoll-models-"))
        golden = json.loads((ROOT / "tests/golden/models/kimi-k2.5.json").read_text())
        cls.model = cls.folder / "kimi-k2.5"
        cls.model.mkdir()
        (cls.model / "config.json").write_text(json.dumps(golden["config"]))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)

    def deployment(self, *options, simulation=None):
        more = ()
        if simulation:
            path = self.folder / f"{self.id().rsplit('.', 1)[1]}.json"
            path.write_text(json.dumps(simulation))
            more = ("--simulation", path)
        return Deployment(self.model, "--tp", RANKS, "--devices", "simulated", "--machine",
                          ROOT / "configs/machines/8x-rtx-pro-6000.json", *more, *options)

    def check_refused(self, words, *options):
        """By the daemon: in under a second, once, before any process is started, with exit code 3."""
        times = []
        for _ in range(3):
            server = self.deployment(*options)
            began = time.monotonic()
            server.launch()
            code = server.daemon.wait(20)
            times.append(time.monotonic() - began)
            log = server.log()
            server.stop()
            self.assertEqual(code, 3, log)
            self.assertEqual(log.count("the plan does not fit"), 1, log)
            self.assertNotIn("worker", log.split("the plan does not fit")[0])
            for word in words:
                self.assertIn(word, log)
        # The best of three: the bound is about our work, not about a busy neighbour.
        self.assertLess(min(times), SLOW, times)

    def test_the_replayed_story_is_refused_at_once(self):
        self.check_refused(["-20.59 GiB", "raise it", "0.770 is the smallest mem-fraction-static", "(1,375 tokens)",
                            "window: --mem-fraction-static 0.772 to "],
                           "--assume", STORY, "--mem-fraction-static", 0.55)

    @unless_sanitized
    def test_the_predicted_story_is_refused_at_once(self):
        self.check_refused(["raise it", "the smallest mem-fraction-static that leaves KV anything"],
                           "--mem-fraction-static", 0.55)

    @unless_sanitized
    def test_plimsoll_start_says_it_once_too(self):
        server = self.deployment()
        done = server.cli("start", *server.arguments[4:], "--assume", STORY, "--mem-fraction-static", 0.5)
        server.stop()
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertEqual((done.stdout + done.stderr).count("the plan does not fit"), 1, done.stderr)

    @unless_sanitized
    def test_the_launch_that_worked_is_rehearsed(self):
        with self.deployment("--mem-fraction-static", 0.88) as server:
            self.assertEqual(len(server.workers()), RANKS)
            plan = json.loads(server.cli("plan", *server.arguments[4:], "--json").stdout)
            self.assertTrue(159_000 <= plan["kv"]["tokens"] <= 166_000, plan["kv"])
            for rank in server.workers():
                self.assertEqual(rank["memory"]["kv"]["committed"], plan["kv"]["bytes"])
                self.assertEqual(rank["memory"]["kv"]["planned"], plan["kv"]["bytes"])
            answer = server.completion([65, 66, 67], max_tokens=3, ignore_eos=True)
            self.assertEqual(answer["choices"][0]["text"], "".join(map(chr, fixed_tokens([65, 66, 67], 3))))
            said = server.cli("logs", "--rank", "0.7").stdout
            self.assertIn("weights = ", said, "each rank says the plan's rows when it commits")
            self.assertNotIn("worker 0.6", said)
            self.assertNotIn("weights = ", server.log(), "and not eight times in the journal")
            self.assertEqual(server.status()["drift"], [])

    def test_a_neighbour_that_came_since_the_plan_is_planned_for_before_anything_is_loaded(self):
        def neighbour(size):
            return {"costs": [{"term": "neighbour", "bytes": size, "ranks": [5]}]}

        with self.deployment(simulation=neighbour("10GiB")) as server:
            self.assertEqual(server.log().count("planning once more before anything is loaded"), 1, server.log())
            self.assertIn("rank 0.5 has ", server.log())
            for rank in server.workers():
                self.assertEqual(rank["memory"]["kv"]["committed"], rank["memory"]["kv"]["planned"])
            self.assertEqual(server.status()["drift"], [])
            os.kill(server.workers()[5]["pid"], signal.SIGKILL)
            wait_until("the replica is restarted", lambda: server.status()["replicas"][0]["incarnation"] != 1
                       and {r["state"] for r in server.workers()} == {"ready"}, 30)
        server = self.deployment("--mem-fraction-static", 0.88, simulation=neighbour("20GiB"))
        server.launch()
        code = server.daemon.wait(30)
        log = server.log()
        server.stop()
        self.assertEqual(code, 3, log)
        self.assertEqual(log.count("the plan does not fit"), 1, log)
        self.assertIn("Before anything was loaded, rank 0.5 has ", log)

    def test_a_context_that_is_auto_is_lowered_for_what_the_second_phase_finds(self):
        costs = [{"term": "neighbour", "bytes": "8GiB", "when": "loaded", "ranks": [5]}]
        with self.deployment(simulation={"costs": costs}) as server:
            self.assertEqual(server.log().count("and the context, which is auto,"), 1, server.log())
            context = server.status()["context_length"]
            kv = server.workers()[0]["memory"]["kv"]
            self.assertLess(kv["committed"], kv["planned"])
            self.assertEqual(context * 70_272, kv["committed"])
            _, models, _ = server.request("GET", "/v1/models")
            self.assertEqual(models["data"][0]["max_model_len"], context)
            answer = server.completion([65, 66, 67], max_tokens=3, ignore_eos=True)
            self.assertEqual(answer["choices"][0]["text"], "".join(map(chr, fixed_tokens([65, 66, 67], 3))))

    def test_hidden_costs_are_drift_by_term_and_the_next_launch_knows_them(self):
        costs = [{"term": "context", "bytes": "1900MiB"},
                 {"term": "communicators", "bytes": "1GiB", "when": "first step"},
                 {"term": "graphs", "bytes": "6GiB", "when": "loaded"},
                 {"term": "neighbour", "bytes": "1GiB", "when": "loading", "ranks": [3]}]
        server = self.deployment("--cuda-graph-max-bs", 128, "--max-total-tokens", 100_000, simulation={"costs": costs}).start()
        try:
            drift = {row["term"]: row for row in server.status()["drift"]}
            self.assertEqual(drift["context"]["measured"], 1900 << 20)
            self.assertEqual((drift["context"]["trust"], drift["graphs"]["trust"]), ("measured", "assumed"))
            self.assertEqual(drift["communicators"]["planned"], 0)
            self.assertEqual(drift["graphs"]["measured"], 6 << 30)
            self.assertEqual(server.workers()[3]["memory"]["neighbours"], 1 << 30)
            server.daemon.send_signal(signal.SIGTERM)
            self.assertEqual(server.daemon.wait(20 * SLOW), 0)
            server.start()
            self.assertEqual(server.status()["drift"], [], "what was learned is what is measured")
            plan = json.loads(server.cli("plan", *server.arguments[4:], "--json").stdout)
            rows = {row["term"]: row for row in plan["ranks"][0]["rows"]}
            self.assertEqual((rows["context"]["bytes"], rows["context"]["trust"]), (1900 << 20, "learned"))
            self.assertEqual(rows["process"]["bytes"], 1 << 30)
            self.assertIn("measured before, in generation ", rows["graphs"]["formula"])
            other = json.loads(server.cli("plan", *server.arguments[4:], "--json", "--cuda-graph-max-bs", 8).stdout)
            graphs = next(row for row in other["ranks"][0]["rows"] if row["term"] == "graphs")
            self.assertEqual(graphs["trust"], "assumed", "other graphs were never measured")
        finally:
            server.stop()


def resident(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


if __name__ == "__main__":
    unittest.main()
