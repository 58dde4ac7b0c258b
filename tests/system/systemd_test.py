"""The installed unit under a real systemd: ready when it serves, restarted or not by how it ended, gone when stopped."""
import http.client
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from deployment import BUILD, SLOW, SystemTest, tiny_model, wait_until
from systemd_machine import SystemdMachine, why_not

UNIT = "plimsoll.service"
CONFIG = "/etc/plimsoll/plimsoll.conf"
PREFIX = pathlib.Path("usr/local")


class Systemd(SystemTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="plimsoll-systemd-"))
        os.chmod(cls.folder, 0o755)  # the service is another user
        cls.destdir = cls.folder / "root"
        subprocess.run(["cmake", "--install", BUILD, "--prefix", f"/{PREFIX}"], check=True, capture_output=True,
                       env={**os.environ, "DESTDIR": str(cls.destdir)}, timeout=60 * SLOW)
        cls.model = f"/{PREFIX}/share/model.gguf"
        (cls.destdir / PREFIX / "share").mkdir(exist_ok=True)
        shutil.copy(tiny_model(cls.folder, seed=1), cls.destdir / PREFIX / "share/model.gguf")
        os.chmod(cls.destdir / PREFIX / "share/model.gguf", 0o644)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)

    def machine(self):
        lacking = why_not()
        if lacking:
            self.skipTest(lacking)
        return SystemdMachine(self.destdir)

    def configure(self, machine, *lines):
        machine.write(CONFIG, "".join(f"{line}\n" for line in (f"model = {self.model}", "port = 0", *lines)))

    def start(self, machine, *lines):
        self.configure(machine, *lines)
        done = machine.systemctl("start", UNIT)
        self.assertEqual(done.returncode, 0, done.stderr + self.daemon_log(machine))

    def daemon_log(self, machine):
        return machine.read("/var/lib/plimsoll/plimsolld.log")

    def status(self, machine):
        done = machine.run("plimsoll", "status", "--json")
        return json.loads(done.stdout) if done.stdout.strip() else {"state": "unknown", "stderr": done.stderr}

    def completion(self, url):
        connection = http.client.HTTPConnection(url.split("//", 1)[1], timeout=30 * SLOW)
        try:
            connection.request("POST", "/v1/completions", json.dumps({"prompt": "a", "max_tokens": 2}),
                               {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def assert_gone(self, machine):
        wait_until("no process is left", lambda: not machine.processes("plimsoll"), 5)
        self.assertNotEqual(machine.run("test", "-e", "/run/plimsoll").returncode, 0)
        self.assertNotEqual(machine.run("test", "-e", f"/sys/fs/cgroup/system.slice/{UNIT}").returncode, 0)

    def test_the_installed_files_name_each_other(self):
        unit = (self.destdir / PREFIX / "lib/systemd/system" / UNIT).read_text()
        self.assertIn(f"ExecStart=/{PREFIX}/bin/plimsolld --config={CONFIG}", unit)
        self.assertNotIn("@", unit.replace("@system-service", "").replace("@privileged", ""))
        self.assertTrue((self.destdir / PREFIX / "bin/plimsolld").exists())
        self.assertTrue((self.destdir / CONFIG[1:]).exists())

    def test_an_edited_configuration_survives_the_next_install(self):
        config = self.destdir / CONFIG[1:]
        before = config.read_text()
        try:
            config.write_text("port = 8123\n")
            subprocess.run(["cmake", "--install", BUILD, "--prefix", f"/{PREFIX}"], check=True, capture_output=True,
                           env={**os.environ, "DESTDIR": str(self.destdir)}, timeout=60 * SLOW)
            self.assertEqual(config.read_text(), "port = 8123\n")
        finally:
            config.write_text(before)

    def test_a_folder_of_ones_own_has_its_own_configuration(self):
        prefix = self.folder / "own"
        subprocess.run(["cmake", "--install", BUILD, "--prefix", prefix], check=True, capture_output=True,
                       timeout=60 * SLOW)
        unit = (prefix / "lib/systemd/system" / UNIT).read_text()
        self.assertIn(f"ExecStart={prefix}/bin/plimsolld --config={prefix}/etc/plimsoll/plimsoll.conf", unit)
        self.assertTrue((prefix / "etc/plimsoll/plimsoll.conf").exists())
        shutil.rmtree(prefix)

    def test_active_means_that_a_token_was_made_and_stop_leaves_nothing(self):
        with self.machine() as machine:
            self.start(machine, "tp = 2")
            self.assertEqual(machine.show(UNIT, "ActiveState"), "active")
            self.assertEqual(machine.show(UNIT, "User"), "plimsoll")
            status = self.status(machine)
            self.assertEqual(status["state"], "serving")
            self.assertIn(f"serving model at {status['url']}", machine.show(UNIT, "StatusText"))
            code, answer = self.completion(status["url"])
            self.assertEqual(code, 200, answer)
            began = time.monotonic()
            done = machine.systemctl("stop", UNIT)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertLess(time.monotonic() - began, 10 * SLOW)
            self.assertEqual(machine.show(UNIT, "Result"), "success")
            self.assert_gone(machine)

    def test_it_is_not_active_while_a_rank_still_loads(self):
        with self.machine() as machine:
            self.configure(machine, "tp = 2")
            machine.systemctl("start", "--no-block", UNIT)
            worker = wait_until("a worker runs", lambda: next(iter(machine.processes("plimsoll-worker")), None), 20)
            os.kill(worker, signal.SIGSTOP)
            try:
                wait_until("the others are there", lambda: len(machine.processes("plimsoll-")) >= 3, 20)
                for _ in range(20):
                    self.assertEqual(machine.show(UNIT, "ActiveState"), "activating")
            finally:
                os.kill(worker, signal.SIGCONT)
            wait_until("it is active", lambda: machine.show(UNIT, "ActiveState") == "active", 20)
            self.assertEqual(self.status(machine)["state"], "serving")

    def test_what_restarting_cannot_help_is_not_restarted(self):
        with self.machine() as machine:
            for lines, code in (((f"model = {self.model}", "device-memory = 1MiB"), "3"),
                                ((f"model = {self.model}", "prot = 8001"), "78"),
                                (("model = /nowhere.gguf",), "78")):
                machine.write(CONFIG, "".join(f"{line}\n" for line in lines))
                done = machine.systemctl("start", UNIT)
                self.assertNotEqual(done.returncode, 0)
                self.assertEqual(machine.show(UNIT, "ActiveState"), "failed")
                self.assertEqual(machine.show(UNIT, "ExecMainStatus"), code)
                self.assertEqual(machine.show(UNIT, "NRestarts"), "0")
                machine.systemctl("reset-failed", UNIT)
            self.assert_gone(machine)

    def test_a_killed_daemon_comes_back_and_its_processes_do_not_stay(self):
        with self.machine() as machine:
            self.start(machine, "tp = 2")
            before = set(machine.processes("plimsoll"))
            victim = next(pid for pid, command in machine.processes("plimsolld").items())
            os.kill(victim, signal.SIGKILL)
            wait_until("systemd started it again", lambda: machine.show(UNIT, "NRestarts") == "1", 10)
            wait_until("it serves again", lambda: machine.show(UNIT, "ActiveState") == "active"
                       and self.status(machine).get("state") == "serving", 20)
            self.assertFalse(before & set(machine.processes("plimsoll")))
            self.assertEqual(self.completion(self.status(machine)["url"])[0], 200)
            machine.systemctl("stop", UNIT)
            self.assert_gone(machine)

    def test_the_sandbox_is_as_tight_as_promised(self):
        unit = self.destdir / PREFIX / "lib/systemd/system" / UNIT
        done = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--no-pager", "--threshold=25", unit],
                              capture_output=True, text=True, timeout=30 * SLOW)
        self.assertEqual(done.returncode, 0, done.stdout[-300:] + done.stderr)


if __name__ == "__main__":
    unittest.main()
