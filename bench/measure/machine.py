"""The machine: what it is, what is installed, and what else it does."""

import datetime
import os
import platform
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TICK = os.sysconf("SC_CLK_TCK")

# The gateway that is measured has the last core for itself; load, origin and Redis share the others.
CORES = sorted(os.sched_getaffinity(0))
GATEWAY_CORES = {CORES[-1]}
OTHER_CORES = set(CORES[:-1]) or GATEWAY_CORES


def install(programs):
    """Installs the packages of those programs that are missing: `{program: package}`. Debian and its kin, as root."""
    missing = sorted({package for program, package in programs.items() if not shutil.which(program)})
    if not missing:
        return
    print(f"installing {' '.join(missing)}", file=sys.stderr)
    # Services that start by themselves would take ports, and CPU from what is measured.
    policy = Path("/usr/sbin/policy-rc.d")
    is_ours = not policy.exists()
    if is_ours:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    try:
        quiet = {
            "check": True,
            "stdout": subprocess.DEVNULL,
            "env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        }
        subprocess.run(["apt-get", "update", "-q"], timeout=120, **quiet)
        subprocess.run(["apt-get", "install", "-qy", "--no-install-recommends", *missing], timeout=600, **quiet)
    finally:
        if is_ours:
            policy.unlink()


def target():
    """Where cargo builds."""
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()


def gateway(guided=False):
    """The program, and what build it is: `$GATEWAY_BIN`, or the one that is made here and now."""
    if given := os.environ.get("GATEWAY_BIN"):
        return Path(given).resolve(), "a build that was given"
    print("building the gateway", file=sys.stderr)
    if guided:
        subprocess.run([ROOT / "bench/pgo", "--strict"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        return target() / "pgo/gateway", "the profile-guided build (`bench/pgo`)"
    subprocess.run(["cargo", "build", "--release", "--locked", "-q", "-p", "gateway"], cwd=ROOT, check=True)
    return target() / "release/gateway", "the release build"


def raise_open_files(wanted):
    """Lets this process and those that it starts have so many files open, as far as the system lets us."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    for hard in (max(most, wanted), most):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
            return min(wanted, hard)
        except (ValueError, PermissionError):
            continue
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def busy():
    """CPU seconds that all cores have worked for, for whomever; what the host took from us counts."""
    line = Path("/proc/stat").read_text().split("\n", 1)[0]
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, line.split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICK


def wait_until_quiet(at_most):
    """Waits, so many seconds at most, for others to leave us nine tenths of a core more than we need."""
    end = time.monotonic() + at_most
    while time.monotonic() < end:
        before, began = busy(), time.monotonic()
        time.sleep(0.3)
        if busy() - before < 0.1 * (time.monotonic() - began):
            return


def describe():
    """Date, processor and system, in one line."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    release = platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    kernel = ".".join(platform.release().split(".")[:2])
    return f"{datetime.date.today()}, {len(CORES)} cores ({model}), {release}, Linux {kernel}"


def version(*command):
    """The first thing that looks like a version in what a program says of itself."""
    said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    words = (said.stdout + said.stderr).replace("/", " ").replace("=", " ").replace("-", " ").split()
    return next((word for word in words if word[:1].isdigit() and "." in word), "?")
