"""What is measured: a configuration, and the requests that it is given."""

CONNECTIONS = 32

BODY = b"x" * 1024
ANSWER = (
    b"HTTP/1.1 200 OK\r\nserver: steady\r\ndate: Mon, 30 Nov 2026 12:00:00 GMT\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\nconnection: keep-alive\r\n\r\n%b" % (len(BODY), BODY)
)

GET = b"GET /api/v1/resource HTTP/1.1\r\nhost: bench.test\r\nuser-agent: steady\r\naccept: */*\r\nx-user-id: u1\r\n\r\n"

FOUR_LAYERS = """
  - {name: global, key: global, algorithm: token_bucket, rate: 10000000/s, burst: 10000000}
  - {name: user, key: "header:x-user-id", algorithm: token_bucket, rate: 1000000/s, burst: 1000000}
  - {name: path, key: path, algorithm: token_bucket, rate: 5000000/s, burst: 5000000}
  - {name: ip, key: ip, algorithm: token_bucket, rate: %s, burst: %d}
"""
PASS = FOUR_LAYERS % ("5000000/s", 5000000)
REFUSE = FOUR_LAYERS % ("1/h", 1)


def config(upstream, limits="[]", access=False, store="memory", more=""):
    """The gateway's file: one worker, so that nothing depends on who takes a connection. `more` is sections besides."""
    return f"""
listen: 127.0.0.1:0
admin: 127.0.0.1:0
server: {{workers: 1}}
log: {{level: info, access: {str(access).lower()}}}
store: {store}
upstreams: {{bench: {{endpoints: "http://{upstream}"}}}}
routes: [{{path: "/{{*rest}}", upstream: bench}}]
limits: {limits}
{more}
"""


# Name → what of `config` differs, and the status of the answers.
CASES = {
    "plain": ({}, "200"),
    "plain, access log": ({"access": True}, "200"),
    "pass": ({"limits": PASS}, "200"),
    "refuse": ({"limits": REFUSE}, "429"),
}
