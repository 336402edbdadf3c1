"""What cost grows with: each subject is a list of cases, of which one thing differs."""

import http.client
import json
import socket
import subprocess
from dataclasses import dataclass, field

from . import layers, machine, servers
from .load import Load, measure, measure_settled
from .process import Failed

FILLED_AT_ONCE = 200
# A counter that says something for an hour, and that nobody uses up within a measurement.
LASTING = {"algorithm": "token_bucket", "rate": "1/h", "burst": 20_000}


@dataclass
class Case:
    """One point of a line: what runs, and what it is sent."""

    subject: str
    line: str
    x: int
    gateways: list
    load: Load = field(default_factory=Load)
    redis: servers.Redis | None = None
    more: dict = field(default_factory=dict)

    def measure(self, bench, seconds, warm_up):
        """The figures of one round."""
        if self.subject == "connections":
            # Where there are most of them, each sends about once a second.
            return measure_settled(self.load, self.gateways[0], seconds=3)
        figures = measure(self.load, self.gateways, bench.origin, self.redis, seconds=seconds, warm_up=warm_up)
        if figures["errors"] or figures["refused"]:
            raise Failed(f"{self.subject}, {self.line} {self.x}: {figures}")
        return figures | self.more


def has_leases(bench):
    """Whether this version of the gateway leases."""
    limits = layers.gateway(layers.low(), precision="leased")
    return servers.refuses_to_load(bench.gateway, bench.folder, limits) is None


def stores(bench):
    """Where counters are: the name of a line, what the limits say, and Redis where it is asked."""
    lines = [("memory", {}, None), ("Redis", {}, bench.redis)]
    return lines + [("leased", {"precision": "leased"}, bench.redis)] * has_leases(bench)


def by_layers(bench, start):
    """None, one, two, four and eight of them, all of which have room."""
    for line, terms, redis in stores(bench):
        for count in (0, 1, 2, 4, 8):
            rates = {name: 1_000_000 for name in list(layers.KEYS)[:count]}
            yield Case("layers", line, count, [start(layers.gateway(rates, **terms), redis)], redis=redis)


def by_keys(bench, start):
    """One layer with so many counters, all of them there before."""
    limits = [{"name": "user", "key": "header:x-user-id", **LASTING}]
    for users in (1_000, 100_000, 1_000_000):
        gateway = start(limits, store={"memory": {"max_keys": 2_000_000}})
        before = gateway.resident()
        fill_memory(gateway.port, users)
        # Of few, what each connection has would be more than the counters.
        more = {"bytes_a_key": (gateway.resident() - before) / users} if users > 1_000 else {}
        yield Case("keys", "memory", users, [gateway], Load(users=users), more=more)
    for users in (1_000, 100_000, 10_000_000):
        redis = bench.new_redis()
        gateway = start(limits, redis)
        before = int(redis.info("memory")["used_memory"])
        fill_redis(redis, gateway.port, users)
        more = {"bytes_a_key": (int(redis.info("memory")["used_memory"]) - before) / users}
        yield Case("keys", "Redis", users, [gateway], Load(users=users), redis, more)


def by_gateways(bench, start):
    """So many that share one Redis, and the same load."""
    for line, terms, redis in stores(bench)[1:]:
        for count in (1, 2, 4):
            gateways = [start(layers.gateway(layers.low(), **terms), redis) for _ in range(count)]
            yield Case("gateways", line, count, gateways, redis=redis)


def by_connections(_bench, start):
    """So many that are open, over which the same load comes."""
    for line, rates in (("no limits", {}), ("four layers in memory", layers.low())):
        for count in (64, 1_000, 10_000):
            gateway = start(layers.gateway(rates))
            yield Case("connections", line, count, [gateway], Load(connections=count, rate=10_000))


SUBJECTS = {"layers": by_layers, "keys": by_keys, "gateways": by_gateways, "connections": by_connections}


def fill_memory(port, users):
    """Lets each user ask once, many at a time."""
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        for first in range(0, users, FILLED_AT_ONCE):
            some = range(first, min(users, first + FILLED_AT_ONCE))
            head = "GET /fill HTTP/1.1\r\nHost: bench.local\r\nX-User-Id: user-"
            connection.sendall("".join(f"{head}{user}\r\n\r\n" for user in some).encode())
            missing, tail = len(some), b""
            while missing:
                answers = tail + connection.recv(1 << 18)
                if b" 429 " in answers:
                    raise Failed(f"a user is refused: {answers[:300]}")
                # The end of a head, which may have come in two pieces.
                missing -= answers.count(b"\r\n\r\n")
                tail = answers[-3:]


def fill_redis(redis, port, users):
    """Gives each user a counter like that of one who asked."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", "/fill", headers={"X-User-Id": "user-0"})
    connection.getresponse().read()
    connection.close()
    [key] = [key for key in redis.say("KEYS", "*") if key.endswith(b"user-0")]
    counter, lives = redis.say("GET", key), redis.say("PTTL", key)
    script = "for n = ARGV[1], ARGV[2] do redis.call('SET', ARGV[3] .. n, ARGV[4], 'PX', ARGV[5]) end"
    for first in range(0, users, 100_000):
        last = min(users, first + 100_000) - 1
        redis.say("EVAL", script, 0, first, last, key.removesuffix(b"0"), counter, lives)


def script_by_batch():
    """µs of Redis CPU a request, by the requests in a call of the script: from the bench of limiter-core."""
    # Only Redis is measured, so what is quick to build will do.
    command = ["cargo", "bench", "-q", "--locked", "--profile", "dev", "-p", "limiter-core", "--bench", "script"]
    done = subprocess.run([*command, "--", "script/requests"], cwd=machine.ROOT, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"{' '.join(command)}: {done.stderr[-1000:]}")
    points = {}
    for file in (machine.target() / "criterion/script/requests").glob("*/new/estimates.json"):
        batch = int(file.parts[-3])
        points[batch] = json.loads(file.read_text())["median"]["point_estimate"] / 1e3 / batch
    return points
