"""What every measurement needs: a scratch folder, the origin, Redis, and the gateway that was built."""

import itertools
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from . import machine, servers
from .process import Failed


class Bench:
    """The servers that stay up from one measurement to the next. All that it started ends with it."""

    def __init__(self, guided=False):
        # An end that is asked for is to be one in order, as Ctrl-C is.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        self.gateway, self.build = machine.gateway(guided)
        self.folder = Path(tempfile.mkdtemp(prefix="gateway-bench-"))
        self._numbers = itertools.count()
        self._started, self._extra = [], []
        try:
            self.origin = servers.origin(self.new_folder())
            self._started.append(self.origin)
            self.redis = servers.Redis(self.new_folder())
            self._started.append(self.redis.process)
        except BaseException:
            self.close()
            raise

    def new_folder(self):
        """A path in the scratch folder, for one server."""
        return self.folder / str(next(self._numbers))

    def new_redis(self):
        """One more Redis, until `close_extra`."""
        redis = servers.Redis(self.new_folder())
        self._extra.append(redis)
        return redis

    def close_extra(self):
        """Ends what `new_redis` started."""
        while self._extra:
            self._extra.pop().process.stop()

    def close(self):
        """Ends all, and leaves nothing behind."""
        self.close_extra()
        for process in reversed(self._started):
            process.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def once_more(measurement):
    """What it gives; where it fails, which on a busy machine it may, what it gives the second time."""
    try:
        return measurement()
    except Failed as failed:
        print(f"once more: {failed}", file=sys.stderr)
        return measurement()
