"""Changes and restarts under load: by every path nobody is refused and nothing fails; what fails is taken back by itself."""
import http.client
import json
import os
import pathlib
import signal
import socket
import tempfile
import threading
import time
import unittest

from deployment import BUILD, SLOW, Deployment, SystemTest, tiny_model, unless_sanitized, wait_until

TOKENS = 40


class Client(threading.Thread):
    """Asks without pause, streams and whole answers in turn, each on a connection of its own."""

    def __init__(self, server, index, expected):
        super().__init__(daemon=True)
        self.server, self.index, self.expected = server, index, expected
        self.answers, self.failures, self.longest, self.stop = 0, [], 0.0, threading.Event()
        self.start()

    def run(self):
        fields = {"prompt": f"ship {self.index}", "max_tokens": TOKENS, "ignore_eos": True, "temperature": 0}
        while not self.stop.is_set():
            began = time.monotonic()
            try:
                if self.answers % 2:
                    status, answer, _ = self.server.request("POST", "/v1/completions", fields, seconds=60)
                    text = answer["choices"][0]["text"] if status == 200 else (status, answer)
                else:
                    events = list(self.server.stream("/v1/completions", fields, seconds=60))
                    text = "".join(e["choices"][0]["text"] for e in events if e != "[DONE]" and e.get("choices"))
                    if events[-1:] != ["[DONE]"]:
                        text = (text, "no [DONE]", events[-1:])
            except (OSError, http.client.HTTPException, AssertionError) as error:
                text = repr(error)
            if text != self.expected:
                self.failures.append(text)
            self.longest = max(self.longest, time.monotonic() - began)
            self.answers += 1


class Load:
    """Clients that are served before the block, and asked for what came of it after it."""

    def __init__(self, test, server, count=6):
        self.test, self.server, self.count = test, server, count

    def __enter__(self):
        expected = [self.server.completion(f"ship {i}", max_tokens=TOKENS, ignore_eos=True, temperature=0)
                    ["choices"][0]["text"] for i in range(self.count)]
        self.clients = [Client(self.server, i, expected[i]) for i in range(self.count)]
        wait_until("clients are served", lambda: all(c.answers > 1 for c in self.clients))
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            before = [c.answers for c in self.clients]
            wait_until("clients are served on", lambda: all(c.answers > b + 1 for c, b in
                                                            zip(self.clients, before, strict=True)), 40)
        for client in self.clients:
            client.stop.set()
        for client in self.clients:
            client.join(60 * SLOW)
        if kind is None:
            self.test.assertEqual([c.failures for c in self.clients], [[]] * self.count)
        self.answers = sum(c.answers for c in self.clients)
        self.longest = max(c.longest for c in self.clients)


class Change(SystemTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = tiny_model(cls.folder.name, seed=2, layers=4, hidden=128, context=1024)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_json(self, server, *words):
        done = server.cli(*words, "--json", seconds=90)
        self.assertTrue(done.stdout, done.stderr)
        return done.returncode, json.loads(done.stdout)

    def pids(self, server):
        return {rank["pid"] for rank in server.workers()}

    def check_restart(self, path, dp):
        with Deployment(self.model, "--dp", dp) as server:
            router, workers = server.status()["router"]["pid"], self.pids(server)
            with Load(self, server) as load:
                code, result = self.run_json(server, "restart", "--path", path)
            self.assertEqual((code, result["path"]), (0, path), result)
            self.assertEqual(server.status()["router"]["pid"], router)
            self.assertFalse(workers & self.pids(server))
            self.assertEqual(len(self.pids(server)), dp)
            self.assertEqual(server.status()["generation"], 2)
            print(f"  restart of {dp} replicas, path {path}: {load.answers} answers, 0 failed, the longest "
                  f"{load.longest:.2f} s, pause {result['pause_s']:.2f} s", flush=True)
            return result

    @unless_sanitized
    def test_a_rolling_restart_of_two_replicas_fails_and_refuses_nobody(self):
        self.assertEqual(self.check_restart("rolling", 2)["pause_s"], 0)

    def test_a_restart_beside_what_runs_has_no_pause(self):
        self.assertEqual(self.check_restart("beside", 1)["pause_s"], 0)

    def test_a_restart_that_holds_requests_has_the_pause_that_was_predicted(self):
        result = self.check_restart("hold", 1)
        self.assertLess(result["pause_s"], 2 * result["predicted_pause_s"] + 0.5 * SLOW)
        self.assertLess(result["predicted_pause_s"], 2 * result["pause_s"] + 0.5 * SLOW)

    @unless_sanitized
    def test_streams_that_outlast_the_drain_go_on_in_the_next_generation(self):
        fields = {"max_tokens": 900, "ignore_eos": True, "temperature": 0.9, "seed": 5}
        for path, dp in (("hold", 1), ("rolling", 2)):
            with self.subTest(path=path), Deployment(self.model, "--dp", dp, "--shutdown-timeout", "200ms") as server:
                expected = [server.completion(f"ship {i}", **fields)["choices"][0]["text"] for i in range(4)]
                texts, clients = [""] * 4, []

                def read(i, server=server, texts=texts):
                    for event in server.stream("/v1/completions", {"prompt": f"ship {i}", **fields}):
                        texts[i] += "" if event == "[DONE]" else event["choices"][0]["text"]

                for i in range(4):
                    clients.append(threading.Thread(target=read, args=(i,)))
                    clients[-1].start()
                wait_until("streams are under way", lambda texts=texts: all(texts))
                code, result = self.run_json(server, "restart", "--path", path)
                self.assertEqual(code, 0, result)
                for client in clients:
                    client.join(60 * SLOW)
                self.assertEqual(texts, expected)

    def test_the_router_that_starts_again_refuses_nobody(self):
        with Deployment(self.model) as server:
            router = server.status()["router"]["pid"]
            with Load(self, server):
                code, result = self.run_json(server, "reconfigure", "served-model-name=boat")
            self.assertEqual((code, result["path"]), (0, "restart"), result)
            self.assertNotEqual(server.status()["router"]["pid"], router)

    @unless_sanitized
    def test_another_host_of_the_same_port_takes_its_place(self):
        """First by the number that it has got already, with another host; then back."""
        with tempfile.TemporaryDirectory() as folder, Deployment(tiny_model(folder, seed=3)) as server:
            want, port = server.completion("ship", max_tokens=4, temperature=0), server.port
            for words, everywhere in (([f"port={port}", "host=0.0.0.0"], True), (["host=127.0.0.1"], False)):
                done = server.cli("reconfigure", *words)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(server.status()["url"], f"http://127.0.0.1:{port}")
                with socket.socket() as other:
                    self.assertEqual(other.connect_ex(("127.0.0.2", port)) == 0, everywhere)
                self.assertEqual(server.completion("ship", max_tokens=4, temperature=0)["choices"], want["choices"])

    def test_a_reconfiguration_takes_the_best_path_and_says_it_before(self):
        with Deployment(self.model, "--dp", 2) as server:
            code, dry = self.run_json(server, "reconfigure", "max-running-requests=9", "--dry-run")
            self.assertEqual((code, dry["path"], dry["predicted_pause_s"]), (0, "beside", 0), dry)
            self.assertEqual([c["effect"] for c in dry["changes"]], ["full"])
            self.assertEqual(server.status()["generation"], 1)
            with Load(self, server):
                code, result = self.run_json(server, "reconfigure", "max-running-requests=9", "context-length=512")
            self.assertEqual((code, result["path"], result["pause_s"]), (0, "beside", 0), result)
            status = server.status()
            self.assertEqual((status["generation"], status["committed"], status["context_length"]), (2, 2, 512))
            answer = server.request("POST", "/v1/completions", {"prompt": "a " * 400, "max_tokens": 200})
            self.assertEqual(answer[0], 400, "the router knows the new limit")

    def test_replicas_come_and_go_while_the_others_serve(self):
        with Deployment(self.model) as server:
            with Load(self, server):
                for dp in (3, 2):
                    code, result = self.run_json(server, "reconfigure", f"dp={dp}")
                    self.assertEqual((code, result["pause_s"]), (0, 0), result)
                    self.assertEqual(len(self.pids(server)), dp)

    def fail_canary(self, server, gate, path):
        """Restarts, kills the first new worker before it is ready, and lets all that come after it pass."""
        gate.unlink()
        before, answer = self.pids(server), []
        change = threading.Thread(target=lambda: answer.append(self.run_json(server, "restart", "--path", path)))
        change.start()
        canary = wait_until("a canary loads", lambda: next(iter(
            rank["pid"] for rank in server.workers() if rank["pid"] not in before | {0} and rank["state"] == "loading"),
            None))
        os.kill(canary, signal.SIGKILL)
        gate.touch()
        change.join(60 * SLOW)
        return answer[0]

    def test_a_canary_that_dies_brings_back_what_was_there_and_harms_nobody(self):
        for path in ("rolling", "beside", "hold", "restart"):
            with tempfile.TemporaryDirectory() as folder, self.subTest(path=path):
                gate = pathlib.Path(folder) / "gate"
                gate.touch()
                preload = {"LD_PRELOAD": str(BUILD / "worker_fault.so"), "FAULT_HOLD": "loaded", "FAULT_GATE": str(gate),
                           "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
                with Deployment(self.model, "--dp", 2, environment=preload) as server:
                    with Load(self, server):
                        code, result = self.fail_canary(server, gate, path)
                    self.assertEqual(code, 75, result)
                    self.assertIn("SIGKILL", result["message"])
                    status = server.status()
                    self.assertEqual((status["generation"], status["committed"]), (1, 1))
                    self.assertEqual([r["state"] for r in status["replicas"]], ["ready"] * 2)
                    if path in ("rolling", "beside"):
                        self.assertEqual(result["pause_s"], 0)

    @unless_sanitized
    def test_a_model_whose_weights_are_no_numbers_is_taken_back(self):
        model = tiny_model(self.folder.name, seed=3, type="F32", layers=4, hidden=128, context=1024)
        weights = bytearray(model.read_bytes())
        weights[-16384:] = b"\x00\x00\xc0\x7f" * 4096  # NaN
        model.write_bytes(weights)
        fields = {"max_tokens": 20, "ignore_eos": True, "temperature": 0}
        with Deployment(self.model) as server:
            before = server.completion("ship", **fields)["choices"][0]["text"]
            code, result = self.run_json(server, "reconfigure", f"model={model}")
            self.assertEqual(code, 78, result)
            self.assertIn("NaN", result["message"])
            status = server.status()
            self.assertEqual((status["generation"], status["committed"]), (1, 1))
            self.assertEqual(status["options"]["model"]["value"], str(self.model))
            self.assertEqual(server.completion("ship", **fields)["choices"][0]["text"], before)

    def test_a_change_that_ends_its_worker_while_it_is_watched_is_taken_back(self):
        with Deployment(self.model) as server:
            before = server.status()["options"]["max-running-requests"]
            with Load(self, server):
                answer = []
                change = threading.Thread(target=lambda: answer.append(
                    self.run_json(server, "reconfigure", "max-running-requests=5")))
                old = self.pids(server)
                change.start()
                wait_until("it is watched", lambda: "it is watched" in server.log())
                os.kill(next(iter(self.pids(server) - old)), signal.SIGKILL)
                change.join(60 * SLOW)
            code, result = answer[0]
            self.assertEqual(code, 75, result)
            self.assertRegex(result["message"], "within 2 s of serving: replica .* SIGKILL")
            self.assertEqual(server.status()["options"]["max-running-requests"], before)


if __name__ == "__main__":
    unittest.main()
