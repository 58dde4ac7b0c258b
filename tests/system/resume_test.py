"""A worker that dies in the middle of 32 streams: each goes on, and ends with the bytes of an undisturbed run."""
import collections
import json
import os
import pathlib
import signal
import tempfile
import threading
import time
import unittest

from deployment import BUILD, Deployment, SystemTest, tiny_model, unless_sanitized, wait_until

STREAMS = 32
TOKENS = 160


def requests():
    """What 32 clients ask, the same in every run: every feature that a continuation has to keep."""
    out = []
    for i in range(STREAMS):
        fields = {"prompt": f"{i}: the ship " * (1 + i % 5), "max_tokens": TOKENS - i, "ignore_eos": True,
                  "stream_options": {"include_usage": True}, "seed": 100 + i}
        kind = i % 8
        fields.update([{"temperature": 0}, {"temperature": 0.9}, {"temperature": 1.1, "top_p": 0.8, "n": 2},
                       {"temperature": 0.8, "stop": ["qu", "zz~"]}, {"temperature": 0.7, "frequency_penalty": 0.7,
                       "presence_penalty": 0.3}, {"temperature": 0.9, "logprobs": 3},
                       {"temperature": 0, "logprobs": 2, "echo": True}, {"temperature": 0.9}][kind])
        if kind == 7:
            del fields["seed"]  # the router draws one: nothing to compare with but the numbers
        out.append(fields)
    return out


class Client(threading.Thread):
    """One stream, read to its end: its events by choice, without what differs from run to run."""

    def __init__(self, server, fields, counter):
        super().__init__(daemon=True)
        self.server, self.fields, self.counter = server, fields, counter
        self.choices = collections.defaultdict(list)
        self.usage, self.error, self.is_done = [], None, False
        self.longest_pause = 0.0
        self.start()

    def run(self):
        try:
            last = time.monotonic()
            for event in self.server.stream("/v1/completions", self.fields, seconds=60):
                self.longest_pause = max(self.longest_pause, time.monotonic() - last)
                last = time.monotonic()
                if event == "[DONE]":
                    self.is_done = True
                elif "error" in event:
                    self.error = event
                elif event.get("usage"):
                    # How much was found in the cache depends on what ran before.
                    self.usage.append({name: value for name, value in event["usage"].items() if name != "prompt_tokens_details"})
                else:
                    for choice in event["choices"]:
                        self.choices[choice["index"]].append(choice)
                    self.counter.append(1)
        except Exception as error:  # told by the test, in its own thread
            self.error = repr(error)

    def outcome(self):
        return self.choices, self.usage


class OneCause(SystemTest):
    def test_a_crash_with_93_live_streams_is_told_in_few_lines(self):
        with tempfile.TemporaryDirectory() as folder:
            model = tiny_model(folder, seed=3, layers=4, hidden=128, context=1024)
            # Eight ranks are rehearsed: what is said does not depend on who computes.
            eight = tiny_model(folder, seed=1, heads=8, kv_heads=8, head_dim=64)
            slow = pathlib.Path(folder, "slow.json")
            slow.write_text(json.dumps({"step_time": "10ms"}))
            rehearsal = ("--tp", 8, "--devices", "simulated:8GiB", "--simulation", slow)
            for number, victim, path, options in ((signal.SIGSEGV, 1, model, ("--tp", 2)),
                                                  (signal.SIGKILL, 5, eight, rehearsal)):
                with Deployment(path, "--max-running-requests", 96, *options) as server:
                    counter = []
                    clients = [Client(server, {"prompt": f"{i}", "max_tokens": 160, "ignore_eos": True}, counter)
                               for i in range(93)]
                    wait_until("93 streams are under way", lambda: all(c.choices for c in clients), 60)
                    before = len(server.log().splitlines())
                    pid = next(rank["pid"] for rank in server.workers() if rank["rank"] == victim)
                    os.kill(pid, number)
                    for client in clients:
                        client.join(120)
                        self.assertIsNone(client.error)
                        self.assertTrue(client.is_done)
                    server.wait_serving()
                    lines = server.log().splitlines()[before:]
                    print("\n".join(f"    {line}" for line in lines), flush=True)
                    self.assertLessEqual(len(lines), 10)
                    self.assertEqual(sum(number.name in line for line in lines), 1)


class Resume(SystemTest):
    def run_all(self, server, disturb=None):
        counter = []
        clients = [Client(server, fields, counter) for fields in requests()]
        if disturb:
            wait_until("the streams are under way", lambda: len(counter) > 10 * STREAMS, 30)
            disturb()
        for client in clients:
            client.join(90)
            self.assertFalse(client.is_alive(), "a stream never ended")
            self.assertIsNone(client.error, client.fields)
            self.assertTrue(client.is_done, client.fields)
            self.assertEqual(len(client.usage), 1)
        print(f"  longest pause of a stream: {max(client.longest_pause for client in clients):.2f} s"
              f"{' (disturbed)' if disturb else ''}", flush=True)
        return [client.outcome() for client in clients]

    def resumed(self, server):
        _, text, _ = server.request("GET", "/metrics")
        return sum(float(line.split()[-1]) for line in text.splitlines()
                   if line.startswith("plimsoll_requests_resumed_total{"))

    def compare(self, undisturbed, disturbed):
        for fields, expected, got in zip(requests(), undisturbed, disturbed, strict=True):
            if "seed" in fields:
                self.assertEqual(got, expected, fields)
            else:
                self.assertEqual(got[1], expected[1], fields)

    def check(self, victims, *options):
        with tempfile.TemporaryDirectory() as folder:
            model = tiny_model(folder, seed=3, layers=4, hidden=128)
            with Deployment(model, "--max-running-requests", 64, *options) as server:
                undisturbed = self.run_all(server)
                for replica, rank in victims:
                    ranks = server.status()["replicas"][replica]["ranks"]
                    before = self.resumed(server)
                    disturbed = self.run_all(server, lambda: os.kill(ranks[rank]["pid"], signal.SIGKILL))
                    self.compare(undisturbed, disturbed)
                    self.assertGreater(self.resumed(server), before, "nothing was interrupted")
                    server.wait_serving()
                self.check_log(server.log(), len(victims))

    def check_log(self, log, deaths):
        """One cause, one message, however many streams there were."""
        since = log.splitlines()
        since = since[next(i for i, line in enumerate(since) if "SIGKILL" in line or " is restarting" in line):]
        self.assertLessEqual(len(since), 10 * deaths, "\n".join(since))
        self.assertEqual(sum("SIGKILL" in line for line in since), deaths, "\n".join(since))

    def test_with_one_replica_streams_go_on_after_its_restart(self):
        self.check([(0, 1), (0, 0)], "--tp", 2)

    @unless_sanitized
    def test_with_two_replicas_streams_go_on_at_once_on_the_other(self):
        self.check([(0, 0)], "--dp", 2)


class Poison(SystemTest):
    """A request that ends its worker is found and failed; the others are not its victims."""

    # "zq" four times, as the tiny model's ids: a byte's is its value and 3.
    PATTERN = "7d74" * 4

    def environment(self, steps):
        environment = {"LD_PRELOAD": str(BUILD / "worker_fault.so"), "FAULT_CRASH": self.PATTERN,
                       "FAULT_STEPS": str(steps)}
        if "ASAN_OPTIONS" in os.environ or (BUILD / "CMakeCache.txt").read_text().count("fsanitize"):
            environment["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
        return environment

    def check(self, steps, *options):
        with tempfile.TemporaryDirectory() as folder:
            model = tiny_model(folder, seed=3)
            healthy = [{"prompt": f"{i}", "max_tokens": 300, "ignore_eos": True, "temperature": 0,
                        "stream_options": {"include_usage": True}} for i in range(6)]
            with Deployment(model, *options, environment=self.environment(steps)) as server:
                expected = [server.completion(fields["prompt"], max_tokens=300, ignore_eos=True, temperature=0)
                            ["choices"][0]["text"] for fields in healthy]
                counter = []
                clients = [Client(server, fields, counter) for fields in healthy]
                wait_until("the streams are under way", lambda: len(counter) > 6, 30)
                poison = Client(server, {"prompt": "zqzqzqzq", "max_tokens": 50, "ignore_eos": True}, [])
                for client in [*clients, poison]:
                    client.join(90)
                    self.assertFalse(client.is_alive(), "a stream never ended")
                for client, text in zip(clients, expected, strict=True):
                    self.assertIsNone(client.error)
                    self.assertEqual("".join(choice["text"] for choice in client.choices[0]), text)
                self.assertIn("ended its worker", str(poison.error))
                self.assertFalse(poison.is_done)
                server.wait_serving()
                self.assertIn("SIGSEGV", server.status()["last_fault"]["message"])

    @unless_sanitized
    def test_one_that_crashes_its_worker_at_once(self):
        self.check(0)

    def test_one_that_crashes_its_worker_later_with_two_replicas(self):
        self.check(5, "--dp", 2)


if __name__ == "__main__":
    unittest.main()
