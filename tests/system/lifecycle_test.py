"""Starts, refusals, signals, deaths: what is running afterwards, and what is said."""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

from deployment import BUILD, SLOW, Deployment, SystemTest, processes, tiny_model, wait_until


class Lifecycle(SystemTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="plimsoll-models-")
        cls.model = tiny_model(cls.folder, seed=1)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)

    def plimsolld(self, *arguments, environment=None):
        return subprocess.run([BUILD / "plimsolld", *map(str, arguments)], capture_output=True, text=True,
                              timeout=20 * SLOW, env={**os.environ, **(environment or {})})

    def test_sigterm_sigint_and_sighup_end_everything(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            server = Deployment(self.model, "--tp", 2).start()
            self.assertEqual(server.stop(number=number), 0)

    def test_sigterm_while_loading_ends_fast(self):
        server = Deployment(self.model, "--tp", 2, "--dp", 2).launch()
        wait_until("a worker runs", lambda: len(processes(server.folder)) > 2)
        began = time.monotonic()
        server.stop()
        self.assertLess(time.monotonic() - began, 3 * SLOW)

    def test_killing_the_daemon_takes_its_children_along(self):
        server = Deployment(self.model, "--tp", 2).start()
        server.daemon.kill()
        server.daemon.wait()
        wait_until("nothing is left", lambda: not processes(server.folder), 3)
        # What the dead life left in its folders does not block the next one.
        server.start()
        self.assertEqual(server.completion("a", max_tokens=2)["usage"]["completion_tokens"], 2)
        server.stop()

    def test_a_killed_worker_and_a_killed_router_come_back(self):
        with Deployment(self.model, "--tp", 2) as server:
            before = server.completion("hello", max_tokens=4, temperature=0)["choices"]
            for pid_of in (lambda: server.workers()[1]["pid"], lambda: server.workers()[0]["pid"],
                           lambda: server.status()["router"]["pid"]):
                victim = pid_of()
                os.kill(victim, signal.SIGKILL)
                wait_until("the victim is replaced", lambda: victim not in processes(server.folder), 5)
                server.wait_serving()
                pids = [rank["pid"] for rank in server.workers()] + [server.status()["router"]["pid"]]
                self.assertNotIn(victim, pids)
                self.assertEqual(server.completion("hello", max_tokens=4, temperature=0)["choices"], before)
            causes = [line for line in server.log().splitlines() if " plimsolld: " in line and "SIGKILL" in line]
            self.assertEqual(len(causes), 3, "\n".join(causes))

    def test_a_taken_port_is_refused_before_anything_loads(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            done = self.plimsolld("--model", self.model, "--port", port, "--runtime-dir", f"{self.folder}/run",
                                  "--state-dir", f"{self.folder}/state")
        self.assertEqual(done.returncode, 75, done.stderr)
        self.assertIn(str(port), done.stderr)

    def test_two_instances_live_side_by_side(self):
        with Deployment(self.model) as one, Deployment(self.model) as two:
            self.assertNotEqual(one.port, two.port)
            one.completion("a", max_tokens=1)
            two.completion("a", max_tokens=1)

    def test_a_second_daemon_in_the_same_folder_names_the_first(self):
        with Deployment(self.model) as server:
            done = self.plimsolld(*server.arguments)
            self.assertEqual(done.returncode, 75, done.stderr)
            self.assertIn(str(server.daemon.pid), done.stderr)

    def test_bad_configuration_is_told_whole_and_starts_nothing(self):
        config = pathlib.Path(self.folder) / "bad.conf"
        config.write_text("prot = 8001\ntp = two\n")
        done = self.plimsolld("--config", config, "--dp", "0", environment={"PLIMSOLL_LOG_LEVLE": "debug"})
        self.assertEqual(done.returncode, 78, done.stderr)
        for part in ("prot", "port", "bad.conf:1", "bad.conf:2", "PLIMSOLL_LOG_LEVLE", "PLIMSOLL_LOG_LEVEL", "--dp"):
            self.assertIn(part.lower(), done.stderr.lower())
        none = Deployment()  # a start without a model is no success, nor another way to idle
        done = none.cli("start", "--config", "/dev/null")
        none.stop()
        self.assertEqual(done.returncode, 78, done.stderr)
        self.assertIn("no model is given", done.stderr)

    def test_a_plan_that_does_not_fit_is_refused_once_before_loading(self):
        done = self.plimsolld("--model", self.model, "--device-memory", "1MiB", "--tp", 2, "--port", 0,
                              "--runtime-dir", f"{self.folder}/run", "--state-dir", f"{self.folder}/state")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("--device-memory", done.stderr)
        planned = subprocess.run([BUILD / "plimsoll", "plan", "--model", self.model, "--device-memory", "1MiB"],
                                 capture_output=True, text=True, timeout=20 * SLOW)
        self.assertEqual(planned.returncode, 3, planned.stderr)

    def test_a_missing_or_broken_model_is_a_configuration_error(self):
        broken = pathlib.Path(self.folder) / "broken.gguf"
        broken.write_bytes(pathlib.Path(self.model).read_bytes()[:2000])
        for path in ("/nowhere/model.gguf", broken):
            done = self.plimsolld("--model", path, "--port", 0, "--runtime-dir", f"{self.folder}/run",
                                  "--state-dir", f"{self.folder}/state")
            self.assertEqual(done.returncode, 78, done.stderr)
            self.assertIn(str(path), done.stderr)

    def test_the_control_socket_is_private(self):
        with Deployment(self.model) as server:
            sockets = [p for p in server.runtime.iterdir() if p.is_socket()]
            self.assertTrue(sockets)
            for path in sockets:
                self.assertIn(path.stat().st_mode & 0o777, (0o600, 0o660), path)

    def test_foreign_bytes_on_the_control_socket_hurt_nobody(self):
        with Deployment(self.model) as server:
            control = next(p for p in server.runtime.iterdir() if p.is_socket() and "control" in p.name)
            for _ in range(20):
                with socket.socket(socket.AF_UNIX) as foreign:
                    foreign.connect(str(control))
                    try:
                        foreign.sendall(os.urandom(4096))
                    except OSError:
                        pass
            self.assertEqual(server.status()["state"], "serving")
            server.completion("a", max_tokens=1)

    def test_drain_finishes_running_streams(self):
        server = Deployment(self.model).start()
        events = server.stream("/v1/completions", {"prompt": "a", "max_tokens": 400, "ignore_eos": True})
        next(events)
        stopper = threading.Thread(target=server.stop)
        stopper.start()
        rest = list(events)
        stopper.join()
        self.assertEqual(rest[-1], "[DONE]")


if __name__ == "__main__":
    unittest.main()
