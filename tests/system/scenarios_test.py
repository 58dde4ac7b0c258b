"""Public failures of other servers, done to real processes; docs/reliability.md has the table of all of them."""
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

from deployment import BUILD, SLOW, Deployment, SystemTest, processes, tiny_model, unless_sanitized, wait_until
from faults import Readiness, logged_at

STARTS = int(os.environ.get("STARTS", "4"))  # of one moment
TRIES = 5
STUCK = {"LD_PRELOAD": str(BUILD / "worker_fault.so"), "FAULT_STUCK": "1",
         "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}


class Stream(threading.Thread):
    """One stream of so many tokens, read to its end."""

    def __init__(self, server, tokens, prompt="a"):
        super().__init__(daemon=True)
        self.server, self.fields = server, {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "temperature": 0}
        self.events, self.is_done, self.error = 0, False, None
        self.start()

    def run(self):
        try:
            for event in self.server.stream("/v1/completions", self.fields):
                self.is_done = event == "[DONE]"
                self.events += 1
                if "error" in event:
                    self.error = event["error"]
        except Exception as error:  # told by the test, in its own thread
            self.error = repr(error)


def begin(server, count, tokens):
    streams = [Stream(server, tokens, f"ship {i}") for i in range(count)]
    wait_until("all streams are under way", lambda: all(s.events > 0 or s.error for s in streams))
    return streams


class Scenarios(SystemTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = tiny_model(cls.folder.name, seed=2, layers=6, hidden=128, context=2048)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def slow(self, *options):
        """One that takes its time for each token, and no processor."""
        simulation = pathlib.Path(self.folder.name, "slow.json")
        simulation.write_text(json.dumps({"step_time": "20ms"}))
        return Deployment(self.model, "--devices", "simulated:8GiB", "--simulation", simulation, *options)

    def check_complete(self, streams):
        for stream in streams:
            stream.join(60 * SLOW)
            self.assertEqual((stream.error, stream.is_done), (None, True))

    def get_stuck(self, server, rank):
        """The line about a rank whose own thread stands still while its others live; readiness was red with it."""
        readiness = Readiness(server)
        pid = server.workers()[rank]["pid"]
        os.kill(pid, signal.SIGUSR1)
        line = wait_until("the stuck rank is named", lambda: next(
            (line for line in server.log().splitlines() if f"(pid {pid})" in line and "hangs" in line), None))
        readiness.join(10 * SLOW)
        readiness.stop.set()
        self.assertIsNotNone(readiness.red_at, "readiness was never red")
        self.assertLess(readiness.red_at - logged_at(line), 3 * SLOW)
        self.assertIn(f"rank {rank} (pid {pid}) hangs", line)
        server.wait_serving()
        return line

    def test_a_rank_that_does_not_join_a_collective_is_named_with_both_numbers(self):  # H-4
        with Deployment(self.model, "--tp", 2, "--stall-timeout", f"{2 * SLOW:.0f}s", environment=STUCK) as server:
            streams = begin(server, 4, 500)
            line = self.get_stuck(server, 1)
            waits, own = re.search(r"while rank 0 waits for it in collective (\d+), in step \d+ \(decode\), collective (\d+)",
                                   line).groups()
            self.assertEqual(int(waits), int(own) + 1, line)
            self.check_complete(streams)

    @unless_sanitized
    def test_a_prefill_that_is_stuck_is_seen_as_such(self):  # H-8
        with Deployment(self.model, "--tp", 2, "--stall-timeout", "2s", "--chunked-prefill-size", 16,
                        environment=STUCK) as server:
            for _ in range(TRIES):
                prompts = [Stream(server, 1, f"{i} " + "the load line of a ship " * 80) for i in range(2)]
                line = self.get_stuck(server, 0)
                self.check_complete(prompts)
                if "(prefill)" in line:
                    return
            self.fail(f"in {TRIES} tries no prefill was struck")

    def test_all_workers_die_at_once_and_the_router_stays(self):  # S-9
        with Deployment(self.model, "--dp", 2) as server:
            router = server.status()["router"]["pid"]
            streams = begin(server, 8, 250)
            for rank in server.workers():
                if rank["pid"]:  # 0: it is being started
                    os.kill(rank["pid"], signal.SIGKILL)
            wait_until("readiness is red", lambda: server.request("GET", "/readyz")[0] == 503)
            self.assertEqual(server.request("GET", "/livez")[0], 200)
            self.assertEqual(len(server.completion("b", max_tokens=2, ignore_eos=True)["choices"]), 1)
            self.check_complete(streams)
            server.wait_serving()
            self.assertEqual(server.status()["router"]["pid"], router)

    def test_a_drain_begins_at_once_and_what_is_too_long_is_told_at_the_deadline(self):  # S-1, S-6
        server = self.slow("--shutdown-timeout", f"{3 * SLOW:.0f}s")
        self.addCleanup(server.stop, check=False)
        server.start()
        short = begin(server, 7, 30)
        (long,) = begin(server, 1, 1900)
        signalled, sent = time.time(), time.monotonic()
        server.daemon.send_signal(signal.SIGTERM)
        line = wait_until("it drains", lambda: next((l for l in server.log().splitlines() if "draining:" in l), None))
        late = logged_at(line) - signalled
        print(f"  the drain began {late * 1000:.0f} ms after the signal", flush=True)
        self.assertLess(late, 1.5 * SLOW)  # 0.05 s on a machine of its own: docs/reliability.md
        status, answer, headers = server.request("POST", "/v1/completions", {"prompt": "b", "max_tokens": 1})
        self.assertEqual((status, answer["error"]["code"]), (503, "draining"))
        self.assertIn("Retry-After", headers)
        self.check_complete(short)
        self.assertEqual(server.daemon.wait(20 * SLOW), 0)
        self.assertLess(time.monotonic() - sent, 3 * SLOW + 15)  # the long one takes 38 s, of the processor none
        long.join(10 * SLOW)
        self.assertFalse(long.is_done)
        self.assertIn("message", long.error, "an event of the stream, and not its end alone")
        self.assertNotIn("terminated", server.log(), "the router leaves by itself")
        server.stop()

    def test_a_terminal_that_closes_ends_everything(self):  # O-5
        # What the kernel does of it, without one: there may be none to be had.
        terminal, child = socket.socketpair()
        server = Deployment(self.model, "--tp", 2)
        self.addCleanup(server.stop, check=False)
        with terminal:
            with child:
                server.daemon = subprocess.Popen([BUILD / "plimsolld", *server.arguments], stdin=child, stdout=child,
                                                 stderr=child, start_new_session=True, env=server.environment)
            server.log_path = server.state / "plimsolld.log"
            server.wait_serving()
        server.daemon.send_signal(signal.SIGHUP)
        self.assertEqual(server.daemon.wait(20 * SLOW), 0)
        server.stop()

    def test_output_that_nobody_reads_holds_nobody_up(self):
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        with self.assertRaises(BlockingIOError):
            while True:
                os.write(writer, b"x" * 4096)
        os.set_blocking(writer, True)
        server = Deployment(self.model)
        self.addCleanup(server.stop, check=False)
        server.daemon = subprocess.Popen([BUILD / "plimsolld", *server.arguments], stdout=writer, stderr=writer,
                                         env=server.environment)
        server.log_path = server.state / "plimsolld.log"
        server.wait_serving()
        self.assertIn("serving", server.log())
        self.assertEqual(server.stop(), 0)
        os.close(writer)
        os.close(reader)

    def test_what_is_said_goes_to_no_file_that_took_the_place_of_a_closed_descriptor(self):
        server = Deployment()
        self.addCleanup(server.stop, check=False)
        server.daemon = subprocess.Popen([BUILD / "plimsolld", *server.arguments],
                                         preexec_fn=lambda: [os.close(fd) for fd in (0, 1, 2)])
        server.log_path = server.state / "plimsolld.log"
        server.wait_state("stopped")
        self.assertIn("idle", server.log())
        self.assertEqual((server.runtime / "lock").read_text(), str(server.daemon.pid))
        self.assertEqual(server.stop(), 0)

    def test_a_model_file_that_never_answers_holds_nobody_up(self):
        fifo = pathlib.Path(self.folder.name, "hangs.gguf")
        os.mkfifo(fifo)  # to open it waits for somebody who writes
        with Deployment(self.model) as server:
            change = threading.Thread(target=lambda: server.cli("reconfigure", f"model={fifo}"))
            change.start()
            wait_until("it is planned", lambda: server.status()["operation"] == "reconfigure")
            server.completion("a", max_tokens=1)
            done = server.cli("stop")
            self.assertEqual(done.returncode, 0, done.stderr)
            change.join(20 * SLOW)
            self.assertFalse(change.is_alive(), "who asked for the change is told")
            self.assertEqual(server.status()["state"], "stopped")

    def test_what_an_earlier_life_left_goes_and_another_instance_loses_nothing(self):  # O-6
        with self.slow() as other:
            server = Deployment(self.model)
            self.addCleanup(server.stop, check=False)
            server.start()
            marks = pathlib.Path(f"/proc/{server.workers()[0]['pid']}/environ").read_bytes().decode().split("\0")
            mark = next(v for v in marks if v.startswith("PLIMSOLLD_INSTANCE="))
            name, value = mark.split("=", 1)
            left = subprocess.Popen(["sleep", "600"], start_new_session=True, env={**os.environ, name: value})
            (stream,) = begin(other, 1, 150)
            workers = {rank["pid"] for rank in other.workers()}
            server.daemon.kill()
            server.daemon.wait()
            wait_until("its children are gone", lambda: not processes(server.folder))
            self.assertIsNone(left.poll())
            server.start()
            self.assertEqual(left.wait(20 * SLOW), -signal.SIGKILL)
            self.assertIn(f"ended process {left.pid} (sleep 600), which was left behind", server.log())
            self.check_complete([stream])
            self.assertEqual({rank["pid"] for rank in other.workers()}, workers)
            server.stop()

    @unless_sanitized
    def test_many_start_at_the_same_moment_and_none_takes_anothers_port(self):  # P-2
        servers = [Deployment(self.model, "--threads", 1) for _ in range(STARTS)]
        for server in servers:
            self.addCleanup(server.stop, check=False)
            server.launch()
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda server: server.wait_serving(30 + STARTS), servers))
            self.assertEqual(len({server.port for server in servers}), STARTS)
            for server in servers:
                server.completion("a", max_tokens=1)
            self.assertEqual(list(pool.map(lambda server: server.stop(), servers)), [0] * STARTS)


if __name__ == "__main__":
    unittest.main()
