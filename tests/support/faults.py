"""Means of system tests to do harm to real processes, and to see how soon it is noticed."""
import ctypes
import datetime
import os
import pathlib
import signal
import socket
import threading
import time
import unittest

from deployment import wait_until

SYS_PIDFD_GETFD = 438

def foreign_socket(pid, fd):
    """A copy of another process's descriptor."""
    pidfd = os.pidfd_open(pid)
    copy = ctypes.CDLL(None, use_errno=True).syscall(SYS_PIDFD_GETFD, pidfd, fd, 0)
    os.close(pidfd)
    if copy < 0:
        raise OSError(ctypes.get_errno(), "pidfd_getfd")
    return socket.socket(fileno=copy)


def break_connections(pid, name):
    """Shuts down what a process has accepted on the Unix socket with a path that ends so."""
    broken = 0
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            if not os.readlink(entry).startswith("socket:"):
                continue
        except OSError:
            continue
        with foreign_socket(pid, int(entry.name)) as one:
            if one.family != socket.AF_UNIX or one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                continue
            if str(one.getsockname()).rsplit("/", 1)[-1].startswith(name):
                one.shutdown(socket.SHUT_RDWR)
                broken += 1
    return broken


class SmallGroup:
    """A memory control group in which nothing more fits, of either version."""

    def __init__(self):
        v1 = pathlib.Path("/sys/fs/cgroup/memory")
        root = v1 if v1.is_dir() else pathlib.Path("/sys/fs/cgroup")
        limit = "memory.limit_in_bytes" if v1.is_dir() else "memory.max"
        self.path = root / f"plimsoll-test-{os.getpid()}"
        try:
            self.path.mkdir(exist_ok=True)
            (self.path / limit).write_text(str(8 << 20))
        except OSError as error:
            raise unittest.SkipTest(f"no memory control group can be made here: {error}") from None

    def end(self, pid):
        (self.path / "cgroup.procs").write_text(str(pid))
        os.kill(pid, signal.SIGUSR2)  # which takes memory: tests/preload/worker_fault.cc
        wait_until("the kernel has ended it", self.is_empty, 10)

    def is_empty(self):
        return not (self.path / "cgroup.procs").read_text().strip()

    def killed(self):
        for name in ("memory.oom_control", "memory.events"):
            if (self.path / name).exists():
                return next(int(line.split()[1]) for line in (self.path / name).read_text().splitlines()
                            if line.startswith("oom_kill "))
        return 0


class Readiness(threading.Thread):
    """Asks /readyz until it is red; when that was."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.red_at, self.stop = server, None, threading.Event()
        self.start()

    def run(self):
        while self.red_at is None and not self.stop.wait(0.02):
            if self.server.request("GET", "/readyz")[0] != 200:
                self.red_at = time.time()


def logged_at(line):
    return datetime.datetime.fromisoformat(line.split()[0]).timestamp()
