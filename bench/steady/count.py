"""Counts of one case, a request: what more requests take more, so that start and end do not count."""

import re

from . import cases
from .gateway import Gateway
from .lockstep import LockStep

FEW_ROUNDS, MORE_ROUNDS = 16, 112
# On a busy machine a run takes longer, and what is done ten times a second is done more often: the least counts.
STRACE_RUNS = 3


def instructions(binary, case, kept):
    """Instructions in user space a request. The profile of the longer run is left at `kept`."""

    def under(out):
        return ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}"]

    def total(out):
        return int(re.search(r"^(?:totals|summary): (\d+)", out.read_text(), re.MULTILINE)[1])

    return _a_request(binary, case, kept, 1, under, total)


def syscalls(binary, case, kept):
    """Calls of the kernel a request. The table of the longer run is left at `kept`."""

    def under(out):
        return ["strace", "-f", "-c", "-o", str(out)]

    def total(out):
        # % time, seconds, usecs/call, calls, [errors], "total".
        return int(re.search(r"^ *100\.00 +\S+ +(?:\S+ +)?(\d+)(?: +\d+)? total$", out.read_text(), re.MULTILINE)[1])

    return _a_request(binary, case, kept, STRACE_RUNS, under, total)


def _a_request(binary, case, kept, runs, under, total):
    def least(rounds):
        totals = []
        for _ in range(runs):
            drive(binary, case, rounds, under(kept))
            totals.append(total(kept))
        return min(totals)

    few = least(FEW_ROUNDS)
    return (least(MORE_ROUNDS) - few) / ((MORE_ROUNDS - FEW_ROUNDS) * cases.CONNECTIONS)


def drive(binary, case, rounds, under=(), environment=None):
    """Runs the gateway for so many rounds, all of them answered as the case says."""
    load = LockStep(cases.ANSWER)
    settings, status = cases.CASES[case]
    with Gateway(binary, cases.config(load.upstream, **settings), under, environment) as gateway:
        load.connect(gateway.address, cases.CONNECTIONS)
        for _ in range(rounds):
            load.round([cases.GET] * cases.CONNECTIONS)
        load.disconnect()
    others = sum(count for seen, count in load.statuses.items() if seen != status)
    # The first request of a client that is refused from then on has passed.
    if others > 1:
        raise RuntimeError(f"{case}: answers are {load.statuses}, not {status}")
