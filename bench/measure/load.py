"""Load, and what was used up to answer it."""

import json
import os
import re
import resource
import signal
import subprocess
import time
import urllib.request
from dataclasses import dataclass, replace
from pathlib import Path

from .machine import OTHER_CORES, busy
from .process import Failed


@dataclass(frozen=True)
class Load:
    """Keep-alive connections that send small GET requests of many users, as fast as they are answered or at a rate."""

    connections: int = 64
    users: int = 10_000
    paths: int = 20
    # Requests a second in all, or 0: as many as there can be.
    rate: int = 0

    def offer(self, ports, seconds):
        """Sends for so long, to all of the ports alike. What wrk says of it."""
        return self.end(self.begin(ports, seconds), seconds + 60)

    def begin(self, ports, seconds):
        """Begins to send, for so long at most."""
        environment = {
            **os.environ,
            "USERS": str(self.users),
            "PATHS": str(self.paths),
            "PAUSE_MS": str(round(1000 * self.connections / self.rate) if self.rate else 0),
            "PORTS": " ".join(map(str, ports)),
        }
        command = ["wrk", f"-t{len(ports)}", f"-c{self.connections}", f"-d{seconds}s", "--timeout", "10s"]
        return subprocess.Popen(
            [*command, "-s", Path(__file__).with_name("load.lua"), f"http://127.0.0.1:{ports[0]}"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, OTHER_CORES),
        )

    def end(self, wrk, at_most):
        """Waits for the end. What wrk says."""
        try:
            said, _ = wrk.communicate(timeout=at_most)
        finally:
            wrk.kill()
        for line in said.splitlines():
            if line.startswith("RESULT "):
                return json.loads(line.removeprefix("RESULT "))
        raise Failed(f"wrk: {said[-500:]}")

    def at(self, rate):
        """The same at another rate."""
        return replace(self, rate=rate)


def measure(load, gateways, origin, redis=None, seconds=3, warm_up=1):
    """Sends load for so long and gives, of 10,000 answered requests, the CPU seconds of all who had a part in them.

    `others` is what programs that have nothing to do with it used meanwhile, in percent of a core.
    """
    ports = [gateway.port for gateway in gateways]
    if warm_up:
        load.offer(ports, warm_up)
    parts = {"gateway": gateways, "redis": [redis.process] if redis else [], "origin": [origin]}

    def used():
        return {name: sum(process.cpu() for process in processes) for name, processes in parts.items()}

    calls = redis.calls() if redis else 0
    before, machine, load_cpu, began = used(), busy(), _children(), time.monotonic()
    got = load.offer(ports, seconds)
    wall, machine, load_cpu = time.monotonic() - began, busy() - machine, _children() - load_cpu
    cpu = {name: now - before[name] for name, now in used().items()} | {"load": load_cpu}
    answered = max(1, got["requests"])
    return {
        "rps": answered / got["seconds"],
        "refused": got["refused"] / answered,
        "errors": got["errors"],
        "p50_ms": got["p50_ms"],
        "p99_ms": got["p99_ms"],
        "calls": ((redis.calls() - calls) if redis else 0) / answered,
        "resident_mib": sum(gateway.resident() for gateway in gateways) / 2**20,
        "core": 100 * cpu["gateway"] / wall,
        "others": 100 * (machine - sum(cpu.values())) / wall,
        **{f"{name}_cpu": 1e4 * spent / answered for name, spent in cpu.items()},
    }


def measure_settled(load, gateway, seconds):
    """As `measure`, of a gateway whose connections have been made before: making them is dear, and happens once."""
    at_most = 30
    wrk = load.begin([gateway.port], at_most + seconds)
    try:
        # All have sent twice or so.
        give_up, enough = time.monotonic() + at_most - 5, _answered(gateway) + max(10_000, 2 * load.connections)
        while _answered(gateway) < enough:
            if wrk.poll() is not None or time.monotonic() > give_up:
                raise Failed(f"{load.connections} connections are not made")
            time.sleep(0.1)
        answered, cpu = _answered(gateway), gateway.cpu()
        time.sleep(seconds)
        answered, cpu = max(1, _answered(gateway) - answered), gateway.cpu() - cpu
        resident = gateway.resident()
        wrk.send_signal(signal.SIGINT)
    except BaseException:
        wrk.kill()
        raise
    if (errors := load.end(wrk, at_most)["errors"]) > 0:
        raise Failed(f"{load.connections} connections: {errors} errors")
    return {
        "rps": answered / seconds,
        "resident_mib": resident / 2**20,
        "gateway_cpu": 1e4 * cpu / answered,
    }


def _answered(gateway):
    """Requests that the gateway has answered since it started."""
    with urllib.request.urlopen(f"http://127.0.0.1:{gateway.admin}/metrics", timeout=5) as metrics:
        text = metrics.read().decode()
    return sum(float(count) for count in re.findall(r"^gateway_requests_total(?:\{.*\})? (\S+)", text, re.MULTILINE))


def _children():
    """CPU seconds of the processes that we have waited for."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime
