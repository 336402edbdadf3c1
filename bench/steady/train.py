"""Gives an instrumented gateway the work that a profile-guided build is to be good at.

    PYTHONPATH=bench python3 -m steady.train GATEWAY FOLDER-FOR-PROFILES

Most of it is what most requests are; the rest sees to it that no feature counts as never used.
"""

import contextlib
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from . import cases, count, http2
from .gateway import Gateway
from .lockstep import LockStep

OFTEN, SOMETIMES = 600, 120

EVERY_ALGORITHM = """
  - {name: bucket, key: ip, algorithm: token_bucket, rate: 100000/s, burst: 1000000}
  - {name: leaky, key: path, algorithm: leaky_bucket, rate: 100000/s, capacity: 1000000}
  - {name: fixed, key: global, algorithm: fixed_window, limit: 10000000, window: 1m}
  - {name: counter, key: "header:x-user-id", algorithm: sliding_window_counter, limit: 10000000, window: 1m}
  - {name: log, key: [route, "header:x-user-id"], algorithm: sliding_window_log, limit: 2000, window: 1s}
"""


MORE = """
  - {name: at_once, key: global, algorithm: concurrency, limit: 1000}
  - {name: logins, key: ip, algorithm: fixed_window, limit: 10000000, window: 1m, charge: {status: [401]}}
  - {name: tried, key: ip, algorithm: token_bucket, rate: 10/s, burst: 10, mode: shadow}
  - {name: own, key: [host, method], algorithm: token_bucket, rate: 100000/s, scope: instance}
"""


def post(body):
    return (
        b"POST /api/v1/resource?page=2 HTTP/1.1\r\nhost: bench.test\r\nuser-agent: steady\r\naccept: */*\r\n"
        b"x-user-id: u2\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    )


def http1(request, rounds):
    def run(load, address):
        load.connect(address, cases.CONNECTIONS)
        for _ in range(rounds):
            load.round([request] * cases.CONNECTIONS)

    return run


def many_connections(load, address):
    for _ in range(20):
        load.connect(address, cases.CONNECTIONS)
        load.round([cases.GET] * cases.CONNECTIONS)
        load.disconnect()


def over_http2(load, address):
    fields = [
        (b":method", b"GET"),
        (b":scheme", b"http"),
        (b":authority", b"bench.test"),
        (b":path", b"/api/v1/resource"),
        (b"user-agent", b"steady"),
        (b"accept", b"*/*"),
        (b"x-user-id", b"u1"),
    ]
    load.connect(address, cases.CONNECTIONS, http2.Answer, http2.HELLO)
    for number in range(SOMETIMES):
        load.round([http2.get(2 * number + 1, fields)] * cases.CONNECTIONS)


@contextlib.contextmanager
def redis():
    """The `store` of a redis-server that ends with the block."""
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        free.close()
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            give_up = time.monotonic() + 30
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except ConnectionRefusedError:
                    if time.monotonic() > give_up:
                        raise
                    time.sleep(0.05)
            yield '{redis: {url: "redis://127.0.0.1:%d", timeout: 1s}}' % port
        finally:
            server.terminate()
            server.wait()


def main():
    binary, profiles = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    environment = {"LLVM_PROFILE_FILE": str(profiles / "%p-%m.profraw")}

    def train(run, **settings):
        load = LockStep(cases.ANSWER)
        with Gateway(binary, cases.config(load.upstream, **settings), environment=environment) as gateway:
            run(load, gateway.address)
            load.disconnect()
        print(f"  {settings.get('limits', '').count('name:')} layers: {load.statuses}", flush=True)

    for case in cases.CASES:
        count.drive(binary, case, OFTEN, environment=environment)
        print(f"  {case}", flush=True)
    train(http1(cases.GET, SOMETIMES), limits=EVERY_ALGORITHM, access=True)
    train(http1(cases.GET, SOMETIMES), limits=MORE)
    train(http1(post(b"{}"), SOMETIMES), limits=cases.PASS)
    train(http1(post(b"x" * 100_000), SOMETIMES // 4))
    train(many_connections)
    train(over_http2, limits=cases.PASS)
    if shutil.which("redis-server"):
        with redis() as store:
            train(http1(cases.GET, OFTEN), store=store, limits=cases.PASS)
            train(http1(cases.GET, SOMETIMES), store=store, limits=cases.REFUSE)
            train(http1(cases.GET, SOMETIMES), store=store, limits=EVERY_ALGORITHM)
            train(http1(cases.GET, SOMETIMES), store=store, limits=MORE)
    else:
        print("  redis-server is not in PATH: trained without it")


if __name__ == "__main__":
    main()
