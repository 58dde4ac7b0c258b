"""SystemdMachine: a real systemd as PID 1 of namespaces of its own, with what was installed into a folder.

It sees this machine's programs and network; /etc, /run, /tmp, /usr/local, /var/lib and the process table are its own, and
nothing of it is left when it ends. Needs root, unshare, cgroup v2 and systemd; `why_not` says what is missing.
"""
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

from deployment import SLOW, wait_until

SYSTEMD = pathlib.Path("/lib/systemd/systemd")
GROUPS = pathlib.Path("/sys/fs/cgroup")
TARGETS = ("sysinit", "basic", "sockets", "multi-user", "network-online", "test")

# Only what a service needs: the usual targets would load modules and set the host's kernel parameters.
BOOT = r"""
set -e
mount -t proc proc /proc
mkdir -p "$DESTDIR/usr/local" "$DESTDIR/etc"
mount --bind "$DESTDIR/usr/local" /usr/local
mount -t tmpfs -o mode=755 tmpfs /run
cp -a /etc /run/etc-copy
cp -a "$DESTDIR/etc/." /run/etc-copy/
mount --bind /run/etc-copy /etc
mount -t tmpfs -o mode=755 tmpfs /var/lib
mount -t tmpfs -o mode=1777 tmpfs /tmp
while umount -l /sys/fs/cgroup 2>/dev/null; do :; done
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /run/systemd/system
for name in $TARGETS; do
  printf '[Unit]\nDescription=%s\nDefaultDependencies=no\nAllowIsolate=yes\n' "$name" > "/run/systemd/system/$name.target"
done
systemd-sysusers
systemd-tmpfiles --create /usr/local/lib/tmpfiles.d/plimsoll.conf
export container=docker
exec "$SYSTEMD" --unit=test.target --log-target=console --log-level=info --show-status=no
"""


def why_not():
    """What this machine lacks, or None."""
    if os.geteuid() != 0:
        return "only root can make the namespaces"
    mounted = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
    if not any(line.split()[4] == "/" for line in mounted):
        return "this is a chroot, where no namespace begins"
    for program in (SYSTEMD, "unshare", "nsenter", "systemd-sysusers", "systemd-tmpfiles"):
        if not shutil.which(program):
            return f"{program} is not installed"
    return None


def hierarchies():
    """Where cgroups can be made: each mounted v1 hierarchy and v2."""
    roots = {}
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, tail = line.partition(" - ")
        kind = tail.split()[0]
        point = pathlib.Path(fields.split()[4])
        if kind in ("cgroup", "cgroup2") and (point == GROUPS or point.parent == GROUPS):
            roots[point] = kind
    return roots


class SystemdMachine:
    def __init__(self, destdir):
        self.destdir = pathlib.Path(destdir)
        self.name = f"plimsoll-test-{os.getpid()}"
        self.log_path = pathlib.Path(tempfile.mkstemp(prefix="plimsoll-systemd-")[1])
        self.unshare = None
        self.pid = None

    def __enter__(self):
        try:
            self.boot()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            print(f"--- systemd's log\n{self.log()[-4000:]}", flush=True)
        self.close()

    def log(self):
        return self.log_path.read_text(errors="replace")

    def make_groups(self):
        for root in hierarchies():
            group = root / self.name
            group.mkdir(exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):  # of v1: empty, and then nothing can be put into it
                if (group / name).exists() and not (group / name).read_text().strip():
                    (group / name).write_text((root / name).read_text())

    def enter_groups(self):
        """In the child before exec: the root of its cgroup namespace is an own group of each hierarchy."""
        for root in hierarchies():
            (root / self.name / "cgroup.procs").write_text(str(os.getpid()))

    def boot(self):
        self.make_groups()
        environment = {"PATH": os.environ["PATH"], "DESTDIR": str(self.destdir), "TARGETS": " ".join(TARGETS),
                       "SYSTEMD": str(SYSTEMD)}
        with open(self.log_path, "wb") as log:
            self.unshare = subprocess.Popen(
                ["unshare", "--pid", "--fork", "--mount", "--uts", "--ipc", "--cgroup", "--kill-child",
                 "--propagation", "private", "bash", "-c", BOOT],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, preexec_fn=self.enter_groups)
        children = pathlib.Path(f"/proc/{self.unshare.pid}/task/{self.unshare.pid}/children")

        def is_up():
            if self.unshare.poll() is not None:
                raise AssertionError(f"no systemd: {self.log()[-2000:]}")
            pids = children.read_text().split()
            if not pids or os.readlink(f"/proc/{pids[0]}/exe").rsplit("/", 1)[-1] != "systemd":
                return False
            self.pid = int(pids[0])
            return self.run("systemctl", "is-active", "test.target").stdout.strip() == "active"

        wait_until("systemd runs", is_up, 30)

    def run(self, *words, seconds=60):
        """A program inside."""
        return subprocess.run(["nsenter", "-t", str(self.pid), "-m", "-p", "-u", "-i", "-C", *map(str, words)],
                              capture_output=True, text=True, timeout=seconds * SLOW,
                              stdin=subprocess.DEVNULL)

    def read(self, path):
        return self.run("cat", path).stdout

    def write(self, path, text):
        subprocess.run(["nsenter", "-t", str(self.pid), "-m", "tee", str(path)], input=text, text=True, check=True,
                       stdout=subprocess.DEVNULL, timeout=20)

    def systemctl(self, *words, seconds=60):
        return self.run("systemctl", *words, seconds=seconds)

    def show(self, unit, name):
        """One property of a unit."""
        return self.systemctl("show", "--property", name, "--value", unit).stdout.strip()

    def processes(self, part="plimsoll"):
        """What runs inside: pid of this machine -> command."""
        found = {}
        namespace = os.readlink(f"/proc/{self.pid}/ns/pid")
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.readlink(entry / "ns/pid") == namespace:
                    command = (entry / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
                    if part in command and int(entry.name) != self.pid:
                        found[int(entry.name)] = command
            except OSError:
                continue
        return found

    def close(self):
        if self.unshare is not None:
            if self.unshare.poll() is None:
                self.unshare.send_signal(signal.SIGKILL)  # and with it, its PID 1 and all that are inside
            self.unshare.wait()
        for root in hierarchies():
            top = root / self.name
            groups = [pathlib.Path(folder) for folder, _, _ in os.walk(top, topdown=False)]
            for group in groups:
                wait_until(f"{group} can go", lambda group=group: remove_group(group), 10)
        self.log_path.unlink(missing_ok=True)


def remove_group(group):
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:  # the last processes are about to end
        return False
    return True
