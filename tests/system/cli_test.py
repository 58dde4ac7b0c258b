"""The CLI: verbs, exit codes, JSON."""
import json
import shutil
import signal
import tempfile
import unittest

from deployment import Deployment, SystemTest, processes, tiny_model, wait_until


class Cli(SystemTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="plimsoll-models-")
        cls.model = tiny_model(cls.folder, seed=1)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)

    def test_exit_codes(self):
        nothing = Deployment()
        try:
            for arguments, code in [
                (("version",), 0), (("nonsense",), 2), (("reconfigure",), 2), (("status",), 4), (("stop",), 4),
                (("plan", "--model", self.model), 0),
                (("plan", "--model", self.model, "--device-memory", "1MiB"), 3),
                (("plan", "--model", self.model, "--tp", "99"), 78),
                (("plan", "--model", self.model, "--tpp", "2"), 78),
                (("plan", "--model", self.model, "--tp", "auto", "--dp", "auto"), 0),
                (("plan", "--model", self.model, "--tp", "2", "--devices", "cpu", "--collective", "shm"), 0),
                (("plan", "--model", self.model, "--tp", "2", "--devices", "cpu", "--collective", "nccl"), 78),
                (("start", "--model", self.model, "--tp", "2", "--devices", "cpu", "--collective", "nccl"), 78),
                (("plan", "--model", "/nowhere.gguf"), 78),
            ]:
                done = nothing.cli(*arguments)
                self.assertEqual(done.returncode, code, (arguments, done.stdout, done.stderr))
                if code:
                    self.assertTrue(done.stderr.strip(), arguments)
        finally:
            nothing.stop()

    def test_start_status_reconfigure_restart_and_stop(self):
        server = Deployment()
        try:
            done = server.cli("start", "--model", self.model, "--port", "0", "--tp", "2", seconds=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            status = server.status()
            for key in ("version", "state", "generation", "url", "router", "replicas", "last_fault"):
                self.assertIn(key, status)
            self.assertEqual(status["state"], "serving")
            self.assertEqual([r["rank"] for r in status["replicas"][0]["ranks"]], [0, 1])
            tested = json.loads(server.cli("status", "--collectives", "--json").stdout)["replicas"][0]["collectives"]
            self.assertEqual((tested["backend"], tested["is_kept"]), ("shm", False))
            self.assertEqual({one["algorithm"] for one in tested["tests"]}, {"one-shot", "two-shot"})
            self.assertTrue(all(size["state"] == "right" for one in tested["tests"] for size in one["sizes"]))
            self.assertIn(f"replica 0: shm, table {tested['hash']}", server.cli("status", "--collectives").stdout)
            self.assertEqual(server.cli("start", "--model", self.model).returncode, 75)

            self.assertEqual(server.cli("reconfigure", "nonsense=1").returncode, 78)
            self.assertEqual(server.cli("reconfigure", "max-queued-requests=5", "log-level=debug").returncode, 0)
            shown = json.loads(server.cli("config", "show", "--json").stdout)
            self.assertEqual(shown["max-queued-requests"]["value"], 5)
            self.assertEqual(shown["max-queued-requests"]["source"], "reconfigured")

            before = server.workers()
            self.assertEqual(server.cli("restart", seconds=60).returncode, 0)
            self.assertFalse({r["pid"] for r in before} & {r["pid"] for r in server.workers()})
            # What the first start measured is only checked.
            kept = json.loads(server.cli("status", "--collectives", "--json").stdout)["replicas"][0]["collectives"]
            self.assertEqual(kept, {**tested, "is_kept": True})

            # A change whose plan does not fit leaves what runs alone.
            running = server.workers()
            self.assertEqual(server.cli("reconfigure", "device-memory=1MiB").returncode, 3)
            self.assertEqual([r["pid"] for r in running], [r["pid"] for r in server.workers()])

            self.assertIn("router: listening", server.cli("logs").stdout)
            self.assertEqual(server.cli("stop").returncode, 0)
            self.assertEqual(server.status()["state"], "stopped")
            self.assertEqual(server.cli("stop", "--all").returncode, 0)
            wait_until("the daemon is gone", lambda: not processes(server.folder), 10)
        except BaseException:
            server.stop(check=False)
            raise
        server.stop()

    def test_chat_answers(self):
        with Deployment(self.model) as server:
            done = server.cli("chat", "--max-tokens", "8", "hello")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue(done.stdout.strip())

    def test_status_of_a_dead_daemon_says_what_was_last_known(self):
        server = Deployment(self.model).start()
        server.daemon.send_signal(signal.SIGKILL)
        server.daemon.wait()
        done = server.cli("status")
        self.assertEqual(done.returncode, 4)
        self.assertIn("last known", (done.stdout + done.stderr).lower())
        server.stop(check=False)


if __name__ == "__main__":
    unittest.main()
