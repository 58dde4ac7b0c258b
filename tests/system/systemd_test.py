"""The installed unit under a real systemd: ready when it serves, restarted or not by how it ended, gone when stopped."""
import contextlib
import http.client
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

from deployment import BUILD, SLOW, SystemTest, keeps_weights, maps_of_weights, tiny_model, wait_until
from systemd_machine import SystemdMachine, why_not

UNIT = "plimsoll.service"
CONFIG = "/etc/plimsoll/plimsoll.conf"
PREFIX = pathlib.Path("usr/local")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Knocking:
    """Connects to a port every few milliseconds in a thread, and counts how often nobody listens."""

    def __init__(self, port):
        self.address = ("127.0.0.1", port)
        self.count = self.refused = 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.knock)

    def knock(self):
        while not self.over.wait(0.01):
            self.count += 1
            try:
                socket.create_connection(self.address, 30 * SLOW).close()
            except ConnectionRefusedError:
                self.refused += 1

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


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
        shutil.copy(tiny_model(cls.folder, seed=1, context=4096), cls.destdir / PREFIX / "share/model.gguf")
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
        verified = subprocess.run(["systemd-analyze", "verify", self.destdir / PREFIX / "lib/systemd/system/plimsoll.socket"],
                                  capture_output=True, text=True, timeout=30 * SLOW)
        self.assertEqual(verified.returncode, 0, verified.stderr)

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
            # Root's own would leave files in its folders that the service could not use.
            done = machine.run("plimsoll", "start")
            self.assertEqual(done.returncode, 75, done.stderr)
            self.assertIn("`systemctl start plimsoll` starts that", done.stderr)
            self.assert_gone(machine)

    def stop_a_rank_that_loads(self, machine):
        """A tiny model loads in milliseconds: starts anew until a signal comes before that."""
        for _ in range(20):
            machine.systemctl("start", "--no-block", UNIT)
            worker = wait_until("a worker runs", lambda: next(iter(machine.processes("plimsoll-worker")), None), 20)
            os.kill(worker, signal.SIGSTOP)
            wait_until("the others are there", lambda: len(machine.processes("plimsoll-")) >= 3, 20)
            if machine.show(UNIT, "ActiveState") == "activating":
                return worker
            os.kill(worker, signal.SIGCONT)
            machine.systemctl("stop", UNIT)
        self.fail("no rank could be stopped while it loaded")

    def test_it_is_not_active_while_a_rank_still_loads(self):
        with self.machine() as machine:
            self.configure(machine, "tp = 2")
            worker = self.stop_a_rank_that_loads(machine)
            try:
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

    def weights(self, machine):
        return set().union(*(maps_of_weights(pid) for pid in machine.processes("plimsoll-worker")))

    def test_a_killed_daemon_comes_back_and_its_processes_do_not_stay(self):
        with self.machine() as machine:
            self.start(machine, "tp = 2")
            before = set(machine.processes("plimsoll"))
            weights = self.weights(machine)
            self.assertEqual(len(weights), 2 if keeps_weights() else 0)
            victim = next(pid for pid, command in machine.processes("plimsolld").items())
            os.kill(victim, signal.SIGKILL)
            wait_until("systemd started it again", lambda: machine.show(UNIT, "NRestarts") == "1", 10)
            wait_until("it serves again", lambda: machine.show(UNIT, "ActiveState") == "active"
                       and self.status(machine).get("state") == "serving", 20)
            self.assertFalse(before & set(machine.processes("plimsoll")))
            self.assertEqual(self.weights(machine), weights, "they came back from the descriptor store")
            self.assertEqual(self.completion(self.status(machine)["url"])[0], 200)
            self.kill_in_every_phase(machine)
            self.assert_gone(machine)

    def kill_daemon(self, machine):
        victim = next(iter(machine.processes("plimsolld")))
        os.kill(victim, signal.SIGKILL)
        return victim

    def wait_for_next_life(self, machine, victim):
        wait_until("another daemon runs", lambda: set(machine.processes("plimsolld")) - {victim}, 10)
        wait_until("it serves again", lambda: machine.show(UNIT, "ActiveState") == "active"
                   and self.status(machine).get("state") == "serving", 20)
        status = self.status(machine)
        self.assertEqual(status["options"]["max-running-requests"]["source"], "default", "nothing else was committed")
        self.assertEqual(self.completion(status["url"])[0], 200)
        return status

    def kill_in_every_phase(self, machine):
        """Of a service that serves: while it changes, loads, decodes and drains."""
        change = threading.Thread(target=lambda: machine.run("plimsoll", "reconfigure", "max-running-requests=9"))
        change.start()
        wait_until("it reconfigures", lambda: self.status(machine).get("operation") == "reconfigure")
        self.wait_for_next_life(machine, self.kill_daemon(machine))
        change.join(30 * SLOW)
        machine.systemctl("stop", UNIT)
        self.stop_a_rank_that_loads(machine)
        status = self.wait_for_next_life(machine, self.kill_daemon(machine))
        for is_draining in (False, True):
            connection = http.client.HTTPConnection(status["url"].split("//", 1)[1], timeout=30 * SLOW)
            connection.request("POST", "/v1/completions", json.dumps(
                {"prompt": "a", "max_tokens": 4000, "ignore_eos": True, "stream": True}),
                {"Content-Type": "application/json"})
            stream = connection.getresponse()
            stream.readline()
            # So that the stream does not end by itself.
            os.kill(next(iter(machine.processes("plimsoll-worker"))), signal.SIGSTOP)
            if is_draining:
                machine.systemctl("stop", "--no-block", UNIT)
                wait_until("it drains", lambda: self.status(machine).get("state") == "draining")
            victim = self.kill_daemon(machine)
            with contextlib.suppress(OSError, http.client.HTTPException):
                self.assertFalse(stream.read().endswith(b"[DONE]\n\n"), "it was complete")
            connection.close()
            if not is_draining:
                status = self.wait_for_next_life(machine, victim)
        wait_until("it is not started again", lambda: machine.show(UNIT, "ActiveState") in ("inactive", "failed"), 10)

    def restart_and_kill(self, machine, port):
        """Connects all the time while the daemon is restarted and then killed, crashed and aborted; the refusals."""
        with Knocking(port) as knocking:
            self.assertEqual(machine.systemctl("restart", UNIT).returncode, 0)
            for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT):
                victim, life = next(iter(machine.processes("plimsolld"))), set(machine.processes("plimsoll"))
                os.kill(victim, number)
                killed = time.monotonic()
                # Its router too: whom that one has let in, it takes along.
                wait_until("it is gone", lambda old=life: not old & set(machine.processes("plimsoll")), 10)
                # Whoever comes now waits in the socket, then in the router, and is served.
                self.assertEqual(self.completion(f"http://127.0.0.1:{port}")[0], 200)
                took = time.monotonic() - killed
                print(f"  served {took:.2f} s after {number.name} of the daemon", flush=True)
                self.assertLess(took, 5 * SLOW)  # 3 s on a machine of its own: docs/reliability.md
                wait_until("it serves again", lambda: self.status(machine).get("state") == "serving", 30)
        self.assertGreater(knocking.count, 20)
        return knocking.refused

    def test_the_socket_unit_starts_the_service_and_refuses_nobody(self):
        port = free_port()
        with self.machine() as machine:
            machine.run("mkdir", "-p", "/etc/systemd/system/plimsoll.socket.d")
            machine.write("/etc/systemd/system/plimsoll.socket.d/port.conf",
                          f"[Socket]\nListenStream=\nListenStream=127.0.0.1:{port}\n")
            machine.systemctl("daemon-reload")
            machine.write(CONFIG, f"model = {self.model}\nport = {port}\n")
            done = machine.systemctl("start", "plimsoll.socket")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(machine.show(UNIT, "ActiveState"), "inactive")
            # Whoever comes first starts it, and is held until the model is there.
            self.assertEqual(self.completion(f"http://127.0.0.1:{port}")[0], 200)
            wait_until("it is active", lambda: machine.show(UNIT, "ActiveState") == "active", 20)
            self.assertEqual(self.restart_and_kill(machine, port), 0)
            # Another port in the configuration is a mistake, told as one.
            machine.write(CONFIG, f"model = {self.model}\nport = {port + 1}\n")
            machine.systemctl("restart", UNIT)
            self.assertEqual(machine.show(UNIT, "ExecMainStatus"), "78")

    def test_without_a_socket_unit_the_descriptor_store_keeps_the_port(self):
        port = free_port()
        with self.machine() as machine:
            machine.write(CONFIG, f"model = {self.model}\nport = {port}\n")
            self.assertEqual(machine.systemctl("start", UNIT).returncode, 0)
            self.assertEqual(self.restart_and_kill(machine, port), 0)
            machine.run("plimsoll", "stop")
            with self.assertRaises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port), 5).close()
            self.assertEqual(machine.run("plimsoll", "start").returncode, 0)
            self.assertEqual(self.completion(f"http://127.0.0.1:{port}")[0], 200)
            machine.systemctl("stop", UNIT)
            with self.assertRaises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port), 5).close()
            self.assert_gone(machine)

    def test_what_a_worker_has_started_dies_with_it(self):
        with self.machine() as machine:
            self.start(machine, "tp = 2")
            tree = machine.run("find", f"/sys/fs/cgroup/system.slice/{UNIT}", "-name", "worker-0-1-*")
            group = tree.stdout.strip()
            self.assertTrue(group, tree.stderr)
            self.assertTrue(machine.read(f"{group}/cgroup.procs").strip())
            # Detached in every way but its control group.
            machine.run("sh", "-c", f"setsid sh -c 'echo $$ > {group}/cgroup.procs; exec sleep 1000' >/dev/null 2>&1 &")
            sleeper = wait_until("it runs", lambda: next(iter(machine.processes("sleep 1000")), None), 5)
            wait_until("it is in the group", lambda: len(machine.read(f"{group}/cgroup.procs").split()) == 2, 5)
            worker = next(rank["pid"] for rank in self.status(machine)["replicas"][0]["ranks"] if rank["rank"] == 1)
            machine.run("kill", "-9", worker)
            wait_until("the sleeper is gone", lambda: sleeper not in machine.processes("sleep"), 5)
            wait_until("its group too", lambda: machine.run("test", "-e", group).returncode != 0, 10)
            wait_until("it serves again", lambda: self.status(machine).get("state") == "serving", 20)

    def test_reload_takes_the_file_and_fails_where_the_change_does(self):
        with self.machine() as machine:
            self.start(machine)
            self.configure(machine, "max-queued-requests = 17")
            done = machine.systemctl("reload", UNIT)
            self.assertEqual(done.returncode, 0, done.stderr)
            shown = json.loads(machine.run("plimsoll", "config", "show", "--json").stdout)
            self.assertEqual(shown["max-queued-requests"]["value"], 17)
            before = self.status(machine)["generation"]
            self.configure(machine, "max-queued-requests = 17", "device-memory = 1MiB")
            self.assertNotEqual(machine.systemctl("reload", UNIT).returncode, 0)
            self.assertEqual(machine.show(UNIT, "ActiveState"), "active")
            self.assertEqual(self.status(machine)["generation"], before)

    def test_a_change_survives_a_killed_daemon_until_the_file_changes(self):
        with self.machine() as machine:
            self.start(machine)
            done = machine.run("plimsoll", "reconfigure", "max-queued-requests=23")
            self.assertEqual(done.returncode, 0, done.stderr)
            os.kill(next(iter(machine.processes("plimsolld"))), signal.SIGKILL)
            wait_until("it serves again", lambda: machine.show(UNIT, "NRestarts") == "1"
                       and self.status(machine).get("state") == "serving", 30)
            self.assertEqual(self.status(machine)["options"]["max-queued-requests"]["value"], 23)
            self.assertIn("options of generation 2", self.daemon_log(machine))
            self.configure(machine, "max-queued-requests = 29")
            machine.systemctl("restart", UNIT)
            self.assertEqual(self.status(machine)["options"]["max-queued-requests"]["value"], 29)

    def test_a_daemon_that_cannot_act_is_killed_by_the_watchdog(self):
        with self.machine() as machine:
            machine.run("mkdir", "-p", f"/etc/systemd/system/{UNIT}.d")
            machine.write(f"/etc/systemd/system/{UNIT}.d/watchdog.conf", f"[Service]\nWatchdogSec={2 * SLOW}\n")
            machine.systemctl("daemon-reload")
            self.start(machine)
            os.kill(next(iter(machine.processes("plimsolld"))), signal.SIGSTOP)
            wait_until("it is started again", lambda: machine.show(UNIT, "NRestarts") == "1", 20)
            wait_until("it serves again", lambda: self.status(machine).get("state") == "serving", 30)

    def test_the_sandbox_is_as_tight_as_promised(self):
        unit = self.destdir / PREFIX / "lib/systemd/system" / UNIT
        done = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--no-pager", "--threshold=25", unit],
                              capture_output=True, text=True, timeout=30 * SLOW)
        self.assertEqual(done.returncode, 0, done.stdout[-300:] + done.stderr)


if __name__ == "__main__":
    unittest.main()
