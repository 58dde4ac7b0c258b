"""Served: a Plimsoll deployment (or a llama-server), and closed loops of streaming requests to it."""
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/release"
SERVES_SECONDS = 60
ANSWER_SECONDS = 300


class Failed(Exception):
    pass


def memory_of(pid):
    """Proportional set size in bytes: shared pages are divided among their users."""
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise Failed(f"process {pid} has no Pss")


class Plimsoll:
    """plimsolld in a folder of its own, until it is left."""

    def __init__(self, model, *options):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="plimsoll-bench-"))
        self.places = ["--runtime-dir", str(self.folder / "run"), "--state-dir", str(self.folder / "state")]
        self.options = ["--model", str(model), "--port", "0", *map(str, options)]

    def __enter__(self):
        self.began = time.perf_counter()
        with open(self.folder / "log", "wb") as log:
            self.process = subprocess.Popen([BUILD / "plimsolld", *self.places, *self.options], stdout=log, stderr=log)
        try:
            done = subprocess.run([BUILD / "plimsoll", "status", "--wait", "--json", *self.places], capture_output=True,
                                  text=True, timeout=SERVES_SECONDS)
            if done.returncode != 0:
                raise Failed(f"plimsolld does not serve:\n{(self.folder / 'log').read_text()[-2000:]}")
            self.port = int(json.loads(done.stdout)["url"].rstrip("/").rsplit(":", 1)[1])
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def status(self):
        done = subprocess.run([BUILD / "plimsoll", "status", "--json", *self.places], capture_output=True, text=True,
                              timeout=30)
        return json.loads(done.stdout)

    def ranks(self):
        return [rank for replica in self.status()["replicas"] for rank in replica["ranks"]]

    def processes(self):
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and str(self.folder).encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
        return found


class LlamaServer:
    """llama-server with as many slots, as its users start it for several streams."""

    def __init__(self, program, model, threads, streams):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.command = [program, "-m", model, "--host", "127.0.0.1", "--port", self.port, "-np", streams, "-c",
                        1024 * streams, "-t", threads, "--no-webui", "--offline"]

    def __enter__(self):
        self.process = subprocess.Popen([str(word) for word in self.command], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        end = time.monotonic() + SERVES_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            with contextlib.suppress(OSError):
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return self
            threading.Event().wait(0.05)
        self.__exit__()
        raise Failed(f"{self.command[0]} does not serve")

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def stream(port, prompt, tokens):
    """One streamed answer: seconds to the first token and to the last, and how many there were."""
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True}
    begin = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS)
    first = last = 0.0
    try:
        connection.request("POST", "/v1/completions", json.dumps({**body, "stream_options": {"include_usage": True}}),
                           {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise Failed(f"a request was answered with {answer.status}: {answer.read()[:300]}")
        usage = None
        for line in answer:
            if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                continue
            event = json.loads(line[6:])
            usage = event.get("usage") or usage
            if event.get("choices"):
                last = time.perf_counter()
                first = first or last
    finally:
        connection.close()
    if not first or not usage:
        raise Failed("a stream ended without a token or its usage")
    return {"first": first - begin, "last": last - begin, "prompt": usage["prompt_tokens"],
            "tokens": usage["completion_tokens"]}


def closed_loop(port, prompts, tokens, streams):
    """So many requests at a time until all prompts are answered: tokens/s, mean seconds to the first token."""
    answers, failures, waiting, lock = [], [], list(prompts), threading.Lock()

    def client():
        while True:
            with lock:
                if not waiting or failures:
                    return
                prompt = waiting.pop(0)
            try:
                answer = stream(port, prompt, tokens)
            except (Failed, OSError, ValueError) as error:
                with lock:
                    failures.append(error)
                return
            with lock:
                answers.append(answer)

    begin = time.perf_counter()
    clients = [threading.Thread(target=client) for _ in range(streams)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    seconds = time.perf_counter() - begin
    if failures:
        raise Failed(f"of a closed loop: {failures[0]}")
    return {"tokens_per_second": sum(one["tokens"] for one in answers) / seconds,
            "first_token_seconds": statistics.mean(one["first"] for one in answers),
            "prompt_tokens": statistics.mean(one["prompt"] for one in answers)}


class BusyLoops:
    """Processes that do nothing but take time, so many on each CPU."""

    def __init__(self, each):
        self.count = each

    def __enter__(self):
        self.processes = []
        for cpu in sorted(os.sched_getaffinity(0)):
            for _ in range(self.count):
                self.processes.append(subprocess.Popen(["taskset", "-c", str(cpu), "sh", "-c", "while :; do :; done"]))
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()
