"""A process that we started: its CPU time, its memory, its end."""

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")


class Failed(Exception):
    """A server did not start, or did not do what it is measured for."""


class Process:
    """Runs on these cores until `stop`, or the end of a `with`; so do those that it starts itself."""

    def __init__(self, command, cores, log, environment=None):
        self.log = Path(log)
        with self.log.open("ab") as out:
            self.child = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
                preexec_fn=lambda: os.sched_setaffinity(0, cores),
            )

    def wait_for(self, port, at_most=15):
        """Waits until it listens on the port."""
        end = time.monotonic() + at_most
        while time.monotonic() < end:
            if self.child.poll() is not None:
                raise Failed(f"{self.child.args[0]} ended with {self.child.returncode}: {self.last_words()}")
            try:
                socket.create_connection(("127.0.0.1", port), 0.5).close()
                return
            except OSError:
                time.sleep(0.02)
        raise Failed(f"{self.child.args[0]} does not listen on {port}: {self.last_words()}")

    def cpu(self):
        """CPU seconds so far, in user space and the kernel, of all threads that live. (Ticks would be too coarse.)"""
        total = 0
        for pid in self._family():
            for task in _entries(f"/proc/{pid}/task"):
                total += int(_read(task / "schedstat").split(" ", 1)[0] or 0)
        return total / 1e9

    def resident(self):
        """Bytes of memory."""
        return PAGE * sum(int((_read(Path(f"/proc/{pid}/statm")) or "0 0").split()[1]) for pid in self._family())

    def last_words(self):
        """The end of its output."""
        return self.log.read_text(errors="replace")[-1000:].strip()

    def stop(self):
        """Ends it."""
        if self.child.poll() is not None:
            return
        family = self._family()
        self.child.send_signal(signal.SIGTERM)
        try:
            self.child.wait(5)
        except subprocess.TimeoutExpired:
            for pid in family:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self.child.wait(5)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def _family(self):
        """It, and its children: masters and their workers."""
        pid = self.child.pid
        return [pid, *map(int, _read(Path(f"/proc/{pid}/task/{pid}/children")).split())]


def _entries(folder):
    try:
        return list(Path(folder).iterdir())
    except OSError:
        return []


def _read(path):
    """What a file of /proc says, or nothing where the process has gone meanwhile."""
    try:
        return path.read_text()
    except OSError:
        return ""


def free_port():
    """A port on which nobody listens, below those that the system gives to outgoing connections."""
    for port in range(18_100, 32_000):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if port not in _given:
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    continue
                _given.add(port)
                return port
    raise Failed("no port is free")


_given = set()
