"""The servers that are measured, and those that they need. Each listens on a free port of 127.0.0.1."""

import json
import socket
import subprocess

from . import layers
from .machine import GATEWAY_CORES, OTHER_CORES
from .process import Failed, Process, free_port

BODY = ("0123456789abcdef" * 64)[:1024]

NGINX = """
user root;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log crit;
worker_rlimit_nofile 65536;
events {{ worker_connections 32768; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  keepalive_requests 1000000000;
  keepalive_timeout 600s;
  map $status $retry_after {{ 429 1; default ""; }}
  {http}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    default_type application/json;
    location / {{ {location} }}
  }}
}}
"""

NGINX_PROXY = "proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection '';"

HAPROXY = """
global
  nbthread 1
  maxconn 8000
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  timeout http-keep-alive 60s
  option http-keep-alive
  http-reuse always
frontend in
  bind 127.0.0.1:{port} backlog 4096
{checks}
  default_backend origin
backend origin
  server origin 127.0.0.1:{origin}
{tables}
"""


def _nginx(folder, cores, http, location):
    port = free_port()
    folder.mkdir()
    file = folder / "nginx.conf"
    file.write_text(NGINX.format(folder=folder, port=port, http=http, location=location))
    process = Process(["nginx", "-p", folder, "-c", file, "-g", "daemon off;"], cores, folder / "log")
    return _listening(process, port)


def _listening(process, port):
    try:
        process.wait_for(port)
    except Failed:
        process.stop()
        raise
    process.port = port
    return process


def origin(folder):
    """What is behind the gateways: answers 1 KiB to everything."""
    return _nginx(folder, OTHER_CORES, "", f'return 200 "{BODY}";')


def nginx(folder, origin_port, rates):
    """nginx as the gateway, with `limit_req` where `rates` are given."""
    zones, checks = layers.nginx(rates) if rates else ("", "")
    upstream = f"upstream origin {{ server 127.0.0.1:{origin_port}; keepalive 512; keepalive_requests 1000000000; }}"
    return _nginx(folder, GATEWAY_CORES, f"{upstream}\n{zones}", f"{checks} {NGINX_PROXY}")


def haproxy(folder, origin_port, rates):
    """HAProxy as the gateway, with stick tables where `rates` are given."""
    port = free_port()
    folder.mkdir()
    checks, tables = layers.haproxy(rates) if rates else ("", "")
    file = folder / "haproxy.cfg"
    file.write_text(HAPROXY.format(port=port, origin=origin_port, checks=checks, tables=tables))
    return _listening(Process(["haproxy", "-db", "-f", file], GATEWAY_CORES, folder / "log"), port)


def gateway(program, folder, origin_port, limits, redis=None, **sections):
    """This gateway, with one worker as all others, and without an access log as they are."""
    port, admin = free_port(), free_port()
    folder.mkdir()
    store = "memory"
    if redis:
        # A machine that is slow is to be measured, not given up.
        store = {"redis": {"url": f"redis://127.0.0.1:{redis.port}", "timeout": "1s", "on_failure": "closed"}}
    config = {
        "listen": f"127.0.0.1:{port}",
        "admin": f"127.0.0.1:{admin}",
        "server": {"workers": 1, "max_connections": 20_000},
        "log": {"level": "error", "access": False},
        "store": store,
        "upstreams": {"origin": {"endpoints": f"http://127.0.0.1:{origin_port}"}},
        "routes": [{"path": "/{*rest}", "upstream": "origin"}, {"path": "/fill", "respond": {"status": 200}}],
        "limits": limits,
        **sections,
    }
    file = folder / "gateway.yaml"
    file.write_text(json.dumps(config, indent=1))
    process = _listening(Process([program, "run", "--config", file], GATEWAY_CORES, folder / "log"), port)
    process.admin = admin
    return process


def refuses_to_load(program, folder, limits):
    """What this gateway says against these limits, or nothing."""
    file = folder / "probe.yaml"
    file.write_text(json.dumps({"store": {"redis": {"url": "redis://127.0.0.1"}}, "limits": limits}))
    checked = subprocess.run([program, "check", "--config", file], capture_output=True, text=True, timeout=20)
    return checked.stderr.strip().splitlines()[0].split(": ", 1)[1] if checked.returncode else None


class Redis:
    """A redis-server without persistence."""

    def __init__(self, folder):
        self.port = free_port()
        folder.mkdir()
        command = ["redis-server", "--port", self.port, "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        self.process = _listening(Process(command, OTHER_CORES, folder / "log"), self.port)

    def say(self, *words):
        """The reply to a command: text, a number, a list of these, or nothing."""
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        with socket.create_connection(("127.0.0.1", self.port), 120) as connection:
            connection.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
            with connection.makefile("rb") as replies:
                return _reply(replies)

    def info(self, section):
        """`INFO`, as a mapping."""
        text = self.say("INFO", section).decode()
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)

    def calls(self):
        """How often the script has run."""
        told = self.info("commandstats").get("cmdstat_evalsha", "calls=0")
        return int(told.split("calls=", 1)[1].split(",", 1)[0])

    def clear(self):
        """Forgets all keys, and what it has counted so far."""
        self.say("FLUSHALL", "SYNC")
        self.say("CONFIG", "RESETSTAT")


def _reply(replies):
    line = replies.readline().rstrip(b"\r\n")
    kind, rest = line[:1], line[1:]
    if kind == b"-":
        raise Failed(f"redis: {rest.decode()}")
    if kind == b":":
        return int(rest)
    if kind == b"$":
        return None if rest == b"-1" else replies.read(int(rest) + 2)[:-2]
    if kind == b"*":
        return [_reply(replies) for _ in range(int(rest))]
    return rest
