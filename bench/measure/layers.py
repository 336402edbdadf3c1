"""The limits that all are measured with: four layers, as each program has them."""

# So much a second that nobody is refused, and so little that nearly all are.
PLENTY = {"global": 10_000_000, "user": 1_000_000, "path": 5_000_000, "ip": 5_000_000}
LITTLE = 5


def low(*names):
    """The four limits a second, with those of `names` low."""
    return {name: LITTLE if name in names else rate for name, rate in PLENTY.items()}


KEYS = {
    "global": "global",
    "user": "header:x-user-id",
    "path": "path",
    "ip": "ip",
    "user-path": ["header:x-user-id", "path"],
    "ip-path": ["ip", "path"],
    "route": "route",
    "host": "host",
}


def gateway(rates, **more):
    """Of our own `limits`: a token bucket for each name of `KEYS`, so much a second."""
    return [
        {"name": name, "key": KEYS[name], "algorithm": "token_bucket", "rate": f"{rate}/s", "burst": rate, **more}
        for name, rate in rates.items()
    ]


def nginx(rates):
    """What `limit_req` has that is nearest: in the `http` block, and in the `location`."""
    variables = {"global": "$server_port", "user": "$http_x_user_id", "path": "$uri", "ip": "$binary_remote_addr"}
    zones = [f"limit_req_zone {variables[name]} zone={name}:32m rate={rate}r/s;" for name, rate in rates.items()]
    checks = [f"limit_req zone={name} burst={rate} nodelay;" for name, rate in rates.items()]
    answer = ["limit_req_status 429;", "add_header Retry-After $retry_after always;"]
    return "\n".join(zones), "\n".join(checks + answer)


def haproxy(rates):
    """What stick tables have that is nearest, requests in the last second: in the `frontend`, and sections besides."""
    refuse = "http-request return status 429 hdr Retry-After 1 if"
    checks = [
        "http-request track-sc0 req.hdr(X-User-Id) table user",
        "http-request track-sc1 path table path",
        "http-request track-sc2 src table ip",
        f"{refuse} {{ fe_req_rate gt {rates['global']} }}",
        f"{refuse} {{ sc0_http_req_rate gt {rates['user']} }}",
        f"{refuse} {{ sc1_http_req_rate gt {rates['path']} }}",
        f"{refuse} {{ sc2_http_req_rate gt {rates['ip']} }}",
    ]
    types = {"user": "string len 64", "path": "string len 64", "ip": "ip"}
    tables = [
        f"backend {name}\n  stick-table type {kind} size 100k expire 10s store http_req_rate(1s)"
        for name, kind in types.items()
    ]
    return "\n".join(f"  {check}" for check in checks), "\n".join(tables)
