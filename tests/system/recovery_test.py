"""What is wished twice, what fails again and again, what cannot be written: real processes, and they recover by themselves."""
import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import time
import unittest

from deployment import BUILD, SLOW, Deployment, SystemTest, processes, tiny_model, wait_until

DEATHS = 3


class Recovery(SystemTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = tiny_model(cls.folder.name, seed=1, context=2048)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_a_second_sigterm_ends_what_the_first_lets_finish(self):
        server = Deployment(self.model, "--tp", 2, "--shutdown-timeout", "60s").start()
        events = server.stream("/v1/completions", {"prompt": "a", "max_tokens": 2000, "ignore_eos": True})
        next(events)
        os.kill(server.workers()[1]["pid"], signal.SIGSTOP)  # so that the stream does not end by itself
        server.daemon.send_signal(signal.SIGTERM)
        drained = time.monotonic()
        wait_until("it drains", lambda: "draining:" in server.log())
        # A Ctrl-C and the signal of whoever started it are one wish: within a second.
        wait_until("the next is a wish of its own", lambda: time.monotonic() - drained > 1.1)
        self.assertIsNone(server.daemon.poll(), "the stream is awaited")
        server.daemon.send_signal(signal.SIGTERM)
        self.assertEqual(server.daemon.wait(3 * SLOW), 0)
        server.stop()

    def test_a_crash_loop_is_seen_and_ends_when_its_cause_is_gone(self):
        gate = pathlib.Path(self.folder.name) / "gate"
        gate.touch()
        held = {"LD_PRELOAD": str(BUILD / "worker_fault.so"), "FAULT_HOLD": "loaded", "FAULT_GATE": str(gate),
                "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
        with Deployment(self.model, environment=held) as server:
            gate.unlink()
            victim, answers = server.workers()[0]["pid"], []
            for death in range(DEATHS):
                os.kill(victim, signal.SIGKILL)
                if death == 0:  # comes while nothing is there, and waits
                    client = threading.Thread(target=lambda: answers.append(server.completion("a", max_tokens=2)))
                    client.start()
                victim = wait_until("the next one loads", lambda victim=victim: next(
                    (rank["pid"] for rank in server.workers() if rank["pid"] not in (0, victim)
                     and rank["state"] == "loading"), None))
                status = server.status()
                self.assertEqual(status["replicas"][0]["restarts"], death + 1)
                self.assertIn("SIGKILL", status["last_fault"]["message"])
            gate.touch()
            client.join(30 * SLOW)
            self.assertEqual(len(answers), 1)
            server.wait_serving()
            waits = [float(line.rsplit("starting again in ", 1)[1].split()[0]) for line in server.log().splitlines()
                     if "starting again in" in line]
            for wait, planned in zip(waits, (0.1, 1, 2), strict=True):
                self.assertTrue(0.7 * planned <= wait <= 1.3 * planned, waits)

    def test_a_full_disk_and_a_torn_record_stop_nobody_and_stale_changes_are_refused(self):
        server = Deployment(self.model)
        server.state.mkdir()
        mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "plimsoll-test", server.state],
                               capture_output=True, text=True, timeout=10)
        if mount.returncode != 0:
            self.skipTest(f"no small file system can be mounted here: {mount.stderr.strip()}")
        try:
            self.check_full_disk(server)
        finally:
            server.stop(check=False)
            subprocess.run(["umount", server.state], check=True, timeout=10)

    def check_full_disk(self, server):
        def reconfigure(value, *words):
            return server.cli("reconfigure", f"max-queued-requests={value}", *words)

        server.start()
        filler = server.state / "filler"
        with open(filler, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 4096)
            except OSError:
                pass
        self.assertEqual(reconfigure(11).returncode, 0, "serving goes on")
        self.assertEqual(server.status()["options"]["max-queued-requests"]["value"], 11)
        server.completion("a", max_tokens=1)
        wait_until("it says so", lambda: "is not kept" in server.log())
        filler.unlink()
        self.assertEqual(reconfigure(12).returncode, 0)
        self.assertIn("kept again", server.log())
        stale = reconfigure(13, "--based-on", 1)
        self.assertEqual(stale.returncode, 75, stale.stdout + stale.stderr)
        self.assertIn("made for generation 1, and now it is 3", stale.stdout + stale.stderr)
        server.daemon.kill()
        server.daemon.wait()
        wait_until("all of it is gone", lambda: not processes(server.folder), 3)
        records = sorted((server.state / "generations").glob("*.json"))
        records[0].write_bytes(records[0].read_bytes()[:100])
        (server.state / "committed.json.a1B2c3").write_text('{"half')
        server.start()
        self.assertEqual(server.status()["options"]["max-queued-requests"]["value"], 12)
        self.assertIn(str(records[0]), server.log(), "the torn record is named")
        server.completion("a", max_tokens=1)


if __name__ == "__main__":
    unittest.main()
