"""What is compared: a kind of work, and the programs that can do it."""

from collections.abc import Callable
from dataclasses import dataclass

from . import layers, servers

NONE, LOCAL, SHARED, LEASED = "none", "local", "shared", "leased"
NGINX, HAPROXY, GATEWAY = "nginx", "HAProxy", "this gateway"


@dataclass(frozen=True)
class Target:
    """One program that does one work."""

    program: str
    limits: str
    # Whether the last of the four layers refuses nearly everything.
    refuses: bool = False

    @property
    def name(self):
        """For the command line."""
        words = [self.program.split()[-1].lower(), self.limits]
        return "-".join(words + ["refuse"] * self.refuses)

    @property
    def work(self):
        """What is measured, as tables have it."""
        counted = {
            NONE: "no limits",
            LOCAL: "four layers, counted here",
            SHARED: "four layers, counted in Redis",
            LEASED: "four layers, leased from Redis",
        }[self.limits]
        return f"{'refuse' if self.refuses else 'forward'}: {counted}"

    @property
    def needs_redis(self):
        """Whether it counts in Redis."""
        return self.limits in (SHARED, LEASED)

    def rates(self):
        """The limits a second."""
        return layers.low("ip") if self.refuses else layers.low()

    def start(self, bench, folder, rates=None):
        """The program, ready."""
        rates = None if self.limits == NONE else rates or self.rates()
        if self.program == GATEWAY:
            limits = layers.gateway(rates, **self.terms()) if rates else []
            redis = bench.redis if self.needs_redis else None
            return servers.gateway(bench.gateway, folder, bench.origin.port, limits, redis)
        start: Callable = {NGINX: servers.nginx, HAPROXY: servers.haproxy}[self.program]
        return start(folder, bench.origin.port, rates)

    def terms(self):
        """What else our layers say."""
        return {"precision": "leased"} if self.limits == LEASED else {}


ALL = [
    *(Target(program, NONE) for program in (NGINX, HAPROXY, GATEWAY)),
    *(Target(program, LOCAL) for program in (NGINX, HAPROXY, GATEWAY)),
    Target(GATEWAY, SHARED),
    Target(GATEWAY, LEASED),
    *(Target(program, LOCAL, refuses=True) for program in (NGINX, HAPROXY, GATEWAY)),
    Target(GATEWAY, SHARED, refuses=True),
]
