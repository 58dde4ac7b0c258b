"""The fault matrix: every fault, on every victim, in every phase; who is lost, and what is said about it.

CI runs one cell for each victim and fault, chosen so that every victim meets every phase; FAULTS=all runs all cells
(tools/check all), FAULTS=worker-SIGKILL-decode a single one, FAULTS=daemon all of that victim. The daemon runs in the
foreground here; tests/system/systemd_test.py has it as a service.
"""
import http.client
import itertools
import os
import pathlib
import signal
import socket
import tempfile
import threading
import time
import unittest

from deployment import BUILD, SLOW, Deployment, SystemTest, processes, tiny_model, wait_until
from faults import Readiness, SmallGroup, break_connections, foreign_socket, logged_at

VICTIMS = ("worker", "leader", "router", "daemon")
# Of each: what the daemon says of it.
FAULTS = {
    "SIGKILL": "killed by SIGKILL",
    "SIGSTOP": "hangs",
    "SIGSEGV": "killed by SIGSEGV",
    "SIGABRT": "killed by SIGABRT",
    "exit0": "left without being asked",
    "OOM": "killed by SIGKILL (OOM:",
    "socket": "exited with code",
}
PHASES = ("loading", "warming", "prefill", "decode", "draining", "reconfiguring")

STREAMS = 6
TOKENS = 300
FD_OF_THE_DEATH_PIPE = 3
TRIES = 4  # to hit a prefill: its steps last milliseconds


def chosen_cells():
    every = list(itertools.product(VICTIMS, FAULTS, PHASES))
    wanted = os.environ.get("FAULTS", "")
    if wanted == "all":
        return every
    if wanted:
        return [cell for cell in every if any("-".join(cell[i:j]) == wanted for i, j in ((0, 3), (0, 2), (0, 1), (2, 3)))]
    square = [(victim, fault, PHASES[(f + 2 * v) % len(PHASES)])
              for v, victim in enumerate(VICTIMS) for f, fault in enumerate(FAULTS)]
    return square if SLOW == 1 else square[::5]


def strike(pid, fault, victim):
    if fault == "exit0":
        os.kill(pid, signal.SIGTERM)  # which every program takes as the wish to leave in order
    elif fault == "OOM":
        group = SmallGroup()
        before = group.killed()
        group.end(pid)
        assert group.killed() > before, "it was not the kernel that ended it"
        group.path.rmdir()
    elif fault == "socket" and victim == "daemon":
        assert break_connections(pid, "control") > 0
    elif fault == "socket":
        with foreign_socket(pid, FD_OF_THE_DEATH_PIPE) as end:
            end.shutdown(socket.SHUT_RDWR)
    else:
        os.kill(pid, getattr(signal, fault))


class Stream(threading.Thread):
    """One greedy stream; what came of it: its text, whether it was complete, or why not."""

    def __init__(self, server, index, counter):
        super().__init__(daemon=True)
        self.server, self.index, self.counter = server, index, counter
        self.text, self.is_done, self.error = "", False, None
        self.start()

    def fields(self):
        return {"prompt": f"ship {self.index}", "max_tokens": TOKENS, "ignore_eos": True, "temperature": 0}

    def run(self):
        try:
            for event in self.server.stream("/v1/completions", self.fields(), seconds=60):
                if event == "[DONE]":
                    self.is_done = True
                elif "error" in event:
                    self.error = event["error"]["message"]
                else:
                    self.text += event["choices"][0]["text"]
                    self.counter.append(1)
        except (OSError, http.client.HTTPException, AssertionError) as error:
            self.error = repr(error)


class Prompts(threading.Thread):
    """Prefill after prefill: long prompts of one token each, until told to stop."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.answers, self.failures, self.stop = server, 0, [], threading.Event()
        self.start()

    def run(self):
        while not self.stop.is_set():
            prompt = f"{self.answers} " + "the load line of a ship " * 40
            try:
                status, answer, _ = self.server.request("POST", "/v1/completions",
                                                        {"prompt": prompt, "max_tokens": 1, "ignore_eos": True})
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(repr(error))
                continue
            if status == 200:
                self.answers += 1
            else:
                self.failures.append(answer)


class Cell:
    """One victim, one fault, one phase."""

    def __init__(self, test, model, victim, fault, phase, expected):
        self.test, self.model, self.victim, self.fault, self.phase = test, model, victim, fault, phase
        self.expected = expected
        self.folder = tempfile.TemporaryDirectory()
        self.gate = pathlib.Path(self.folder.name) / "gate"

    def deployment(self):
        hold = {"loading": "loaded", "warming": "ready"}.get(self.phase)
        environment = {"LD_PRELOAD": str(BUILD / "worker_fault.so"), "FAULT_EAT": "1",
                       "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
        if hold:
            environment |= {"FAULT_HOLD": hold, "FAULT_GATE": str(self.gate),
                            "FAULT_RANK": "1" if self.victim == "worker" else "0"}
        return Deployment(self.model, "--tp", 2, "--stall-timeout", f"{SLOW:.0f}s", "--load-timeout", f"{3 * SLOW:.0f}s",
                          "--shutdown-timeout", f"{(4 if self.victim == 'router' else 15) * SLOW:.0f}s",
                          "--chunked-prefill-size", 32, environment=environment)

    def pid(self, server):
        if self.victim == "daemon":
            return server.daemon.pid

        def found():
            status = server.status()
            if self.victim == "router":
                return (status.get("router") or {}).get("pid")
            ranks = (status.get("replicas") or [{}])[0].get("ranks") or []
            return ranks[1 if self.victim == "worker" else 0]["pid"] if len(ranks) == 2 else None

        return wait_until("the victim runs", found)

    def strike(self, server):
        self.pid_struck = self.pid(server)
        self.lines_before = server.log().count("\n")
        strike(self.pid_struck, self.fault, self.victim)
        self.struck_at = time.monotonic()

    def run(self):
        getattr(self, self.phase)()
        self.folder.cleanup()

    # ---- phases ----

    def loading(self):
        server = self.deployment().launch()
        with self.kept(server):
            state = self.phase
            wait_until(f"the replica is {state}",
                       lambda: [r["state"] for r in server.status().get("replicas", ())] == [state])
            if self.phase == "loading":  # until the message that is held back, and not before
                wait_until("weights are loaded", lambda: all(
                    rank["state"] == "loading" for rank in server.workers()))
            wait_until("the router listens", lambda: server.status()["router"]["state"] == "listening")
            self.strike(server)
            if self.victim == "daemon":
                return self.check_daemon(server, state)
            if self.fault != "SIGSTOP":
                wait_until("the victim is gone", lambda: self.pid_struck not in processes(server.folder))
            self.gate.touch()
            self.wait_cause(server)
            server.wait_serving(40)
            self.test.assertEqual(server.completion("ship 0", max_tokens=TOKENS, ignore_eos=True, temperature=0)
                                  ["choices"][0]["text"], self.expected[0])
            if self.victim != "router":
                self.assert_phase(server)

    warming = loading

    def prefill(self):
        for attempt in range(TRIES):
            server = self.deployment().start()
            with self.kept(server):
                clients = [Prompts(server) for _ in range(4)]
                wait_until("prompts are answered", lambda: sum(c.answers for c in clients) > 8)
                self.strike(server)
                if self.victim == "daemon":
                    for client in clients:
                        client.stop.set()
                    return self.check_daemon(server, "serving", clients=clients)
                self.wait_cause(server)
                before = sum(c.answers for c in clients)
                wait_until("prompts are answered again", lambda: sum(c.answers for c in clients) > before + 8, 40)
                for client in clients:
                    client.stop.set()
                for client in clients:
                    client.join(60)
                if self.victim == "router":
                    # Each client may lose the one request that was open; none is refused.
                    for client in clients:
                        self.test.assertLessEqual(len(client.failures), 1, client.failures)
                else:
                    self.test.assertEqual([c.failures for c in clients], [[]] * 4)
                server.wait_serving()
                if self.victim == "router" or self.phase in self.cause(server):
                    return
        self.test.fail(f"in {TRIES} tries no fault struck in a prefill")

    def decode(self):
        server = self.deployment().start()
        with self.kept(server):
            streams = self.streams(server)
            is_hang = self.fault == "SIGSTOP" and self.victim in ("worker", "leader")
            readiness = Readiness(server) if is_hang else None
            self.strike(server)
            if self.victim == "daemon":
                return self.check_daemon(server, "serving", streams)
            if self.victim == "router":
                self.check_new_connections(server)
            self.wait_cause(server)
            if readiness:
                readiness.join(10 * SLOW)
                readiness.stop.set()
                self.test.assertIsNotNone(readiness.red_at, "readiness was never red")
                late = readiness.red_at - logged_at(self.cause(server))
                self.test.assertLess(late, 1 * SLOW)
                print(f"  readiness was red {late:+.2f} s after the verdict", flush=True)
            self.check_streams(streams)
            server.wait_serving()
            self.assert_readiness(server)
            if self.victim != "router":
                self.assert_phase(server)
            self.assert_log(server)

    def draining(self):
        server = self.deployment().start()
        with self.kept(server):
            streams = self.streams(server)
            server.daemon.send_signal(signal.SIGTERM)
            wait_until("the router drains", lambda: "draining:" in server.log())
            self.strike(server)
            if self.victim == "daemon":
                return self.check_daemon(server, "draining", streams)
            self.check_streams(streams)
            wait_until("the daemon ends", lambda: server.daemon.poll() is not None, 30)
            self.test.assertEqual(server.daemon.returncode, 0)
            log = server.log()
            self.test.assertLess(log.index("draining:"), len(log))
            server.assert_nothing_left()

    def reconfiguring(self):
        server = self.deployment().start()
        with self.kept(server):
            streams = self.streams(server)
            change = threading.Thread(target=lambda: server.cli("reconfigure", "max-running-requests=24",
                                                                seconds=60), daemon=True)
            change.start()
            wait_until("it reconfigures", lambda: server.status()["operation"] == "reconfigure")
            self.strike(server)
            if self.victim == "daemon":
                self.check_daemon(server, "takes the place of", streams)
                change.join(20 * SLOW)
                return self.test.assertFalse(change.is_alive(), "reconfigure waits for an answer that was lost")
            self.check_streams(streams)
            change.join(60 * SLOW)
            self.test.assertFalse(change.is_alive(), "reconfigure never ended")
            server.wait_serving(40)
            self.test.assertEqual(server.completion("ship 0", max_tokens=TOKENS, ignore_eos=True, temperature=0)
                                  ["choices"][0]["text"], self.expected[0])

    # ---- what is asserted ----

    def kept(self, server):
        class Kept:
            def __enter__(_):
                return server

            def __exit__(_, kind, *rest):
                server.__exit__(kind, *rest)

        return Kept()

    def check_daemon(self, server, phase, streams=(), clients=()):
        """Struck in the foreground: what goes on without it does; what cannot is gone, and starts again."""
        lines = server.log().splitlines()
        self.test.assertTrue(any(phase in line for line in lines[:self.lines_before + 1]), "struck too early")
        if self.fault in ("SIGSTOP", "socket", "exit0"):
            self.check_daemon_lives(server, streams, clients)
        else:
            self.check_daemon_is_gone(server, streams, clients)

    def check_daemon_lives(self, server, streams, clients):
        if self.fault == "SIGSTOP":  # nobody is looked after meanwhile, and nobody needs it
            wait_until("streams go on without it", lambda: all(s.is_done for s in streams), 40)
            os.kill(self.pid_struck, signal.SIGCONT)
        self.gate.touch()
        if self.phase not in ("loading", "warming"):
            for stream, text in zip(streams, self.expected, strict=False):
                stream.join(60 * SLOW)
                self.test.assertEqual((stream.error, stream.text), (None, text))
            for client in clients:
                client.join(60 * SLOW)
                self.test.assertEqual([f for f in client.failures if not self.is_refusal_of_a_drain(f)], [])
        if self.fault == "exit0" or self.phase == "draining":
            wait_until("the daemon ends", lambda: server.daemon.poll() is not None, 30)
            self.test.assertEqual(server.daemon.returncode, 0)
            return server.assert_nothing_left()
        server.wait_serving(40)
        restarts = [r["restarts"] for r in server.status()["replicas"]] + [server.status()["router"]["restarts"]]
        self.test.assertEqual(sum(restarts), 0, "somebody was blamed for it")
        return None

    def is_refusal_of_a_drain(self, failure):
        """Who asks after the signal that ends the daemon in order is told so, or finds nobody any more."""
        if self.fault != "exit0":
            return False
        if isinstance(failure, str):
            return failure.startswith(("ConnectionRefusedError", "ConnectionResetError"))
        return failure["error"]["code"] == "draining"

    def check_daemon_is_gone(self, server, streams, clients):
        server.daemon.wait(10 * SLOW)
        wait_until("all of it is gone", lambda: not processes(server.folder), 2)
        self.gate.touch()
        for stream, text in zip(streams, self.expected, strict=False):
            stream.join(60 * SLOW)
            self.test.assertTrue(text.startswith(stream.text), "a stream was altered")
            self.test.assertTrue(stream.is_done == (stream.text == text) or stream.error)
        for client in clients:
            client.join(60 * SLOW)
        server.start()  # nothing that is left is in its way
        status = server.status()
        self.test.assertEqual(status["options"]["max-running-requests"]["source"], "default",
                              "what was never committed is not taken over")
        self.test.assertEqual(server.completion("ship 0", max_tokens=TOKENS, ignore_eos=True, temperature=0)
                              ["choices"][0]["text"], self.expected[0])

    def streams(self, server):
        counter = []
        streams = [Stream(server, index, counter) for index in range(STREAMS)]
        wait_until("streams decode", lambda: len(counter) > 5 * STREAMS and all(s.text for s in streams))
        return streams

    def check_streams(self, streams):
        for stream in streams:
            stream.join(60 * SLOW)
            self.test.assertFalse(stream.is_alive(), "a stream never ended")
        if self.victim != "router":
            self.test.assertEqual([s.error for s in streams], [None] * STREAMS)
            self.test.assertEqual([s.text for s in streams], self.expected)
            return
        for stream, text in zip(streams, self.expected, strict=True):
            # Broken or complete, but never wrong and never taken for complete.
            self.test.assertTrue(text.startswith(stream.text), "a stream was altered")
            self.test.assertTrue(stream.is_done == (stream.text == text) or stream.error)

    def check_new_connections(self, server):
        """They wait in the backlog: none is refused, each is answered."""
        wait_until("the victim is gone", lambda: self.pid_struck not in processes(server.folder), 20)
        status, answer, _ = server.request("POST", "/v1/completions",
                                           {"prompt": "a", "max_tokens": 1, "ignore_eos": True}, seconds=40)
        waited = time.monotonic() - self.struck_at
        self.test.assertEqual(status, 200, answer)
        print(f"  a new connection was answered {waited:.2f} s after the fault", flush=True)
        if self.fault != "SIGSTOP":
            self.test.assertLess(waited, 5 * SLOW)  # 1 s on a machine of its own: docs/reliability.md

    def cause(self, server):
        """The daemon's line about the victim, by its pid."""
        what = FAULTS[self.fault]
        if self.fault == "SIGSTOP" and self.phase in ("loading", "warming") and self.victim != "router":
            what = "(--load-timeout)"
        lines = [line for line in server.log().splitlines()
                 if f"(pid {self.pid_struck})" in line and what in line]
        return lines[0] if lines else ""

    def wait_cause(self, server):
        wait_until("the daemon names the victim and the fault", lambda: self.cause(server), 25)

    def assert_phase(self, server):
        self.test.assertIn(self.phase, self.cause(server))

    def assert_readiness(self, server):
        status, body, _ = server.request("GET", "/readyz")
        self.test.assertEqual(status, 200, body)

    def assert_log(self, server):
        """From the first word about the fault on: few lines, one of them the cause."""
        lines = server.log().splitlines()
        first = next(i for i, line in enumerate(lines) if f"(pid {self.pid_struck})" in line or "goes on" in line
                     or "go on" in line)
        self.test.assertLessEqual(len(lines) - first, 10, "\n".join(lines[first:]))


class Faults(SystemTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = tiny_model(cls.folder.name, seed=2, layers=6, hidden=128, context=2048)
        with Deployment(cls.model, "--tp", 2) as server:
            cls.expected = [server.completion(f"ship {index}", max_tokens=TOKENS, ignore_eos=True, temperature=0)
                            ["choices"][0]["text"] for index in range(STREAMS)]

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()


class Connections(SystemTest):
    def test_a_broken_connection_between_router_and_leader_is_mended_and_streams_go_on(self):
        with tempfile.TemporaryDirectory() as folder:
            model = tiny_model(folder, seed=2, layers=6, hidden=128, context=2048)
            with Deployment(model, "--tp", 2) as server:
                expected = [server.completion(f"ship {index}", max_tokens=TOKENS, ignore_eos=True, temperature=0)
                            ["choices"][0]["text"] for index in range(STREAMS)]
                counter = []
                streams = [Stream(server, index, counter) for index in range(STREAMS)]
                wait_until("streams decode", lambda: len(counter) > 5 * STREAMS and all(s.text for s in streams))
                leader = next(rank["pid"] for rank in server.workers() if rank["rank"] == 0)
                self.assertGreater(break_connections(leader, "replica-0-"), 0)
                for stream in streams:
                    stream.join(60 * SLOW)
                self.assertEqual([s.error for s in streams], [None] * STREAMS)
                self.assertEqual([s.text for s in streams], expected)
                status = server.status()
                self.assertEqual(status["router"]["restarts"] + status["replicas"][0]["restarts"], 0)
                self.assertIn("replica 0 is disconnected", server.log())


def add_cells():
    for victim, fault, phase in chosen_cells():
        def test(self, cell=(victim, fault, phase)):
            Cell(self, self.model, *cell, self.expected).run()

        setattr(Faults, f"test_{victim}_{fault}_{phase}", test)


add_cells()

if __name__ == "__main__":
    unittest.main()
