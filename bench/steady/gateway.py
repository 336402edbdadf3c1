"""A gateway as a child process."""

import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

LISTENING = re.compile(r"listening on (127\.0\.0\.1):(\d+)")
# Start-up under callgrind takes seconds; on a busy machine, some more.
PATIENCE_S = 120


class Gateway:
    """Runs `binary` with `config`, behind the words of `under` (a tool that counts); ends with the `with` block.

    The end is the one that SIGTERM asks for, so that counts and profiles are written.
    """

    def __init__(self, binary, config, under=(), environment=None):
        self.folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(self.folder.name)
        (folder / "gateway.yaml").write_text(config)
        self.log = folder / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [*under, str(pathlib.Path(binary).resolve()), "run", "--config", "gateway.yaml"],
                cwd=folder,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.address = None

    def __enter__(self):
        give_up = time.monotonic() + PATIENCE_S
        while self.address is None:
            log = self.log.read_text(errors="replace")
            found = [match for line in log.splitlines() if "admin" not in line for match in LISTENING.finditer(line)]
            if found:
                self.address = (found[0][1], int(found[0][2]))
            elif self.process.poll() is not None or time.monotonic() > give_up:
                self.process.kill()
                self.process.wait()
                raise RuntimeError("the gateway does not listen:\n" + log)
            else:
                time.sleep(0.02)
        return self

    def __exit__(self, *_):
        # Not the tool that may stand in front of it: strace would keep the signal to itself.
        os.kill(self._own_pid(), signal.SIGTERM)
        try:
            status = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        log = self.log.read_text(errors="replace")
        self.folder.cleanup()
        if status:
            raise RuntimeError("the gateway ended with %d:\n%s" % (status, log[-2000:]))

    def _own_pid(self):
        """The gateway's process: the tool's only child, or, where the tool has become it, the process itself."""
        pid = self.process.pid
        children = pathlib.Path("/proc/%d/task/%d/children" % (pid, pid))
        listed = children.read_text().split() if children.exists() else []
        return int(listed[0]) if listed else pid
