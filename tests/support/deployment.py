"""Deployment: real Plimsoll processes in folders of their own, for system tests.

Every wait has a deadline and polls an event; `Deployment` is a context manager that stops what it
started and asserts that nothing of it is left.
"""
import http.client
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

BUILD = pathlib.Path(os.environ.get("SYSTEM_TEST_BUILD_DIR", "build/release")).resolve()
CACHE = pathlib.Path(os.environ.get("PLIMSOLL_CACHE", pathlib.Path.home() / ".cache/plimsoll"))
SMOLLM2 = CACHE / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
# Sanitizer builds are many times slower; every deadline grows with this.
SLOW = float(os.environ.get("SYSTEM_TEST_SLOWNESS", "1"))
# Of cases that run the same code another runs, sanitizers see one.
unless_sanitized = unittest.skipIf(SLOW != 1, "sanitizers run another case of the kind")


def deadline(seconds):
    return time.monotonic() + seconds * SLOW


def wait_until(what, condition, seconds=20):
    """Polls until `condition()` is truthy; returns its value."""
    end = deadline(seconds)
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"after {seconds * SLOW:.0f} s still not true: {what}")
        select.select([], [], [], 0.02)


def tiny_model(folder, **shape):
    """Writes a small random model and returns its path."""
    path = pathlib.Path(folder) / ("tiny-" + "-".join(f"{k}{v}" for k, v in shape.items()) + ".gguf")
    arguments = [word for name, value in shape.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    subprocess.run([BUILD / "tiny_model", *arguments, "--output", path], check=True, capture_output=True,
                   timeout=60 * SLOW)
    return path


def require(test, path):
    if not pathlib.Path(path).exists():
        test.skipTest(f"{path} is absent: run tools/fetch-test-data to fetch it")


def processes(marker):
    """Live processes whose command line or environment names the folder `marker`: pid -> command."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if str(marker) in command and state != "Z":
            found[int(entry.name)] = command
    return found


def off_plan(memory):
    """Bytes by which a rank holds more or less than planned. Less of the process is not counted: PSS divides the pages
    of libraries among all who map them, other tests too."""
    off = 0
    for row in memory["rows"]:
        difference = (row["measured"] or 0) - row["planned"] if row["term"] != "kv" else 0
        off += max(difference, 0) if row["term"] == "process" else difference
    return abs(off)


def keeps_weights():
    """Whether the kernel has 2 MiB pages for a memfd, which packed weights are kept in (Linux 6.1)."""
    return tuple(int(number) for number in os.uname().release.split("-")[0].split(".")[:2]) >= (6, 1)


def maps_of_weights(pid):
    """What a process maps of packed weights: {(name, inode)}, each read-only."""
    found = set()
    for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
        fields = line.split()
        if len(fields) > 5 and "plimsoll-weights-" in fields[5]:
            assert fields[1].startswith("r--"), line
            found.add((fields[5], fields[4]))
    return found


class Deployment:
    def __init__(self, model=None, *options, environment=None):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="plimsoll-test-"))
        self.runtime = self.folder / "run"
        self.state = self.folder / "state"
        self.log_path = self.folder / "log"
        self.arguments = ["--runtime-dir", str(self.runtime), "--state-dir", str(self.state), "--port", "0",
                          *(["--model", str(model)] if model else []), *map(str, options)]
        self.environment = {**os.environ, **(environment or {})}
        self.daemon = None

    def launch(self):
        with open(self.log_path, "ab") as log:
            self.daemon = subprocess.Popen([BUILD / "plimsolld", *self.arguments], stderr=log, stdout=log,
                                           env=self.environment)
        return self

    def start(self, seconds=30):
        self.launch()
        self.wait_serving(seconds)
        return self

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, *_):
        if kind is not None:
            print(f"--- log of {self.folder}\n{self.log()[-6000:]}", flush=True)
        self.stop(check=kind is None)

    def log(self):
        return self.log_path.read_text(errors="replace")

    def cli(self, *arguments, seconds=30):
        return subprocess.run([BUILD / "plimsoll", *map(str, arguments), "--runtime-dir", self.runtime,
                               "--state-dir", self.state], capture_output=True, text=True,
                              timeout=seconds * SLOW, env=self.environment)

    def status(self):
        done = self.cli("status", "--json")
        return json.loads(done.stdout) if done.stdout.strip() else {"state": "unknown", "stderr": done.stderr}

    def wait_state(self, state, seconds=30):
        def reached():
            if self.daemon and self.daemon.poll() is not None and state != "stopped":
                raise AssertionError(f"plimsolld ended with {self.daemon.returncode}:\n{self.log()[-3000:]}")
            status = self.status()
            return status if status.get("state") == state else None

        return wait_until(f"state {state}", reached, seconds)

    def wait_serving(self, seconds=30):
        status = self.wait_state("serving", seconds)
        self.url = status["url"]
        self.port = int(self.url.rsplit(":", 1)[1].rstrip("/"))
        return status

    def workers(self):
        return [rank for replica in self.status()["replicas"] for rank in replica["ranks"]]

    def request(self, method, path, body=None, seconds=60, headers=None):
        """One HTTP exchange: (status, parsed JSON or text, headers)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds * SLOW)
        try:
            payload = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
            connection.request(method, path, payload, {"Content-Type": "application/json", **(headers or {})})
            answer = connection.getresponse()
            text = answer.read().decode()
            kind = answer.headers.get("Content-Type", "")
            return answer.status, json.loads(text) if "json" in kind else text, answer.headers
        finally:
            connection.close()

    def completion(self, prompt, **fields):
        status, answer, _ = self.request("POST", "/v1/completions", {"prompt": prompt, **fields})
        assert status == 200, (status, answer)
        return answer

    def stream(self, path, body, seconds=60):
        """The parsed `data:` events of a streaming request; the last may be the string [DONE]."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds * SLOW)
        try:
            connection.request("POST", path, json.dumps({**body, "stream": True}),
                               {"Content-Type": "application/json"})
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            for line in answer:
                line = line.decode().rstrip("\r\n")
                if line.startswith("data: "):
                    yield line[6:] if line[6:] == "[DONE]" else json.loads(line[6:])
        finally:
            connection.close()

    def stop(self, check=True, number=signal.SIGTERM, seconds=20):
        """Ends the daemon and asserts that nothing of the deployment is left."""
        code = None
        if self.daemon and self.daemon.poll() is None:
            self.daemon.send_signal(number)
            try:
                code = self.daemon.wait(seconds * SLOW)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
                self.daemon.wait()
                if check:
                    raise AssertionError(f"plimsolld did not stop:\n{self.log()[-3000:]}") from None
        for pid in processes(self.folder) if not check else ():
            os.kill(pid, signal.SIGKILL)
        if check:
            self.assert_nothing_left()
        shutil.rmtree(self.folder, ignore_errors=True)
        return code

    def assert_nothing_left(self, seconds=3):
        wait_until("no process of the deployment is left", lambda: not processes(self.folder), seconds)
        sockets = [str(p) for p in self.runtime.rglob("*") if p.is_socket()] if self.runtime.exists() else []
        assert not sockets, f"sockets left behind: {sockets}"


class SystemTest(unittest.TestCase):
    """Prints the seed and gives `self.smollm2()`."""

    def smollm2(self):
        require(self, SMOLLM2)
        return SMOLLM2
