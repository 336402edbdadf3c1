//! The golden table of mistakes: what is written, and all that is told of it.

/// What is wrong, the text, and the problems: a line each.
pub(in crate::config) const MISTAKES: &[(&str, &str, &str)] = &[
    (
        "key of the file",
        "limts: []\n",
        "1:1: limts: unknown key, did you mean `limits`?",
    ),
    (
        "key with a hyphen",
        "store:
  redis:
    url: redis://127.0.0.1
    on-failure: open
",
        "4:5: store.redis.on-failure: unknown key, did you mean `on_failure`?",
    ),
    (
        "key of a listener",
        "listen:
  - {adress: 127.0.0.1:8080}
",
        "2:6: listen[0].adress: unknown key, did you mean `address`?",
    ),
    (
        "key of an upstream",
        "upstreams:
  app:
    endpoint: http://127.0.0.1:8000
",
        "3:5: upstreams.app.endpoint: unknown key, did you mean `endpoints`?",
    ),
    (
        "key of an endpoint",
        "upstreams:
  app:
    endpoints:
      - url: http://127.0.0.1:8000
        wieght: 2
",
        "5:9: upstreams.app.endpoints[0].wieght: unknown key, did you mean `weight`?",
    ),
    (
        "bounds of what is at an upstream that leave nothing between them",
        "upstreams:
  app:
    endpoints: http://127.0.0.1:8000
    adaptive_concurrency: {min: 20, max: 10}
  other:
    endpoints: http://127.0.0.1:8001
    adaptive_concurrency: {min: 2000, mx: 9}
",
        "4:42: upstreams.app.adaptive_concurrency.max: `max` is 10 and `min` 20, expected `max` to be at least `min`
7:33: upstreams.other.adaptive_concurrency.min: `max` is 1000 and `min` 2000, expected `max` to be at least `min`
7:39: upstreams.other.adaptive_concurrency.mx: unknown key, did you mean `max`?",
    ),
    (
        "priorities that are none",
        "routes:
  - {path: /a, respond: {}, priority: high}
  - {path: /b, respond: {}, priority: -1001}
  - {path: /c, respond: {}, priority: 1.5}
",
        "2:39: routes[0].priority: `high` is not a whole number, expected one from -1000 to 1000
3:39: routes[1].priority: -1001 is out of range, expected -1000 to 1000
4:39: routes[2].priority: `1.5` is not a whole number, expected one from -1000 to 1000",
    ),
    (
        "key of a route",
        "routes:
  - path: /
    respnd: {}
",
        "3:5: routes[0].respnd: unknown key, did you mean `respond`?",
    ),
    (
        "key of an answer",
        "routes:
  - path: /
    respond: {stauts: 200}
",
        "3:15: routes[0].respond.stauts: unknown key, did you mean `status`?",
    ),
    (
        "key of a layer",
        "limits:
  - name: user
    key: ip
    algorithm: token_bucket
    rat: 5/s
",
        "5:5: limits[0].rat: unknown key, did you mean `rate`?",
    ),
    (
        "key of a match",
        "limits:
  - name: user
    key: ip
    algorithm: token_bucket
    rate: 5/s
    match:
      pth: /v1
",
        "7:7: limits[0].match.pth: unknown key, did you mean `path`?",
    ),
    (
        "key of a not",
        "limits:
  - name: user
    key: ip
    algorithm: token_bucket
    rate: 5/s
    match: {not: {method: GET}}
",
        "6:19: limits[0].match.not.method: unknown key, did you mean `methods`?",
    ),
    (
        "key like nothing",
        "server:
  banana: 3
",
        "2:3: server.banana: unknown key, expected `header_timeout`, `idle_timeout`, `max_header_bytes`, `max_body_bytes`, `max_connections`, `drain` or `workers`",
    ),
    (
        "key in another case",
        "Listen: 127.0.0.1:8080\n",
        "1:1: Listen: unknown key, did you mean `listen`?",
    ),
    (
        "key of another algorithm",
        "limits:
  - name: user
    key: ip
    algorithm: fixed_window
    limit: 5
    window: 1m
    burst: 5
",
        "7:5: limits[0].burst: unknown key for `fixed_window`, expected `limit`, `window`, `align` or `timezone`; `burst` belongs to `token_bucket`",
    ),
    (
        "key that another algorithm has only, so far",
        "limits:
  - name: user
    key: ip
    algorithm: token_bucket
    rate: 5/s
    lease: {size: 1%}
",
        "6:5: limits[0].lease: unknown key for `token_bucket`, expected `rate`, `burst`, `max_wait` or `warm_up`; `lease` belongs to `concurrency`, or to a layer that says `precision: leased`",
    ),
    (
        "layers that cannot be leased",
        "store: {redis: {url: redis://127.0.0.1}}
limits:
  - {name: a, key: ip, algorithm: concurrency, limit: 5, precision: leased}
  - {name: b, key: ip, algorithm: sliding_window_log, limit: 5, window: 1m, precision: leased}
  - {name: c, key: ip, algorithm: token_bucket, rate: 5/s, max_wait: 1s, precision: leased}
  - {name: d, key: ip, algorithm: leaky_bucket, rate: 5/s, precision: leased}
  - {name: e, key: ip, algorithm: token_bucket, rate: 5/s, scope: instance, precision: leased}
  - {name: f, key: ip, algorithm: token_bucket, rate: 5/s, mode: shadow, precision: leased}
  - {name: g, key: ip, algorithm: token_bucket, rate: 5/s, precision: leased, candidate: {algorithm: token_bucket, rate: 6/s}}
  - {name: h, key: ip, algorithm: token_bucket, rate: 5/s, charge: all, precision: leased}
  - {name: i, key: ip, algorithm: token_bucket, rate: 5/s, charge: {status: 401}, precision: leased}
  - {name: j, key: ip, algorithm: token_bucket, rate: 5/s, cost: {response_header: x-a}, precision: leased}
  - {name: k, key: ip, algorithm: token_bucket, rate: 5/s, precision: least}
  - {name: l, key: ip, algorithm: token_bucket, rate: 500/s, precision: leased, overrides: {values: 10.0.0.1, max_wait: 1s}}
",
        "3:69: limits[0].precision: what is in flight is in the hands of a gateway anyway: expected `exact`
4:88: limits[1].precision: a log knows the moment of each request, and leased units have none: expected `exact`
5:85: limits[2].precision: who waits for a token has to have it from Redis: expected `exact`
6:71: limits[3].precision: turns in a queue are given by Redis, one by one: expected `exact`
7:88: limits[4].precision: the layer is counted in this gateway's memory, which costs no call: expected `exact`
8:85: limits[5].precision: a shadow refuses nothing, and is to count exactly what it would: expected `exact`
9:71: limits[6].precision: every request is counted by the candidate, in Redis: expected `exact`
10:84: limits[7].precision: only what is charged to admitted requests, for good, can be handed out: expected `exact`
11:94: limits[8].precision: only what is charged to admitted requests, for good, can be handed out: expected `exact`
12:101: limits[9].precision: a cost from an answer is settled in Redis, request by request: expected `exact`
13:71: limits[10].precision: `least` is not known here, did you mean `leased`?
14:92: limits[11].overrides: the layer says `precision: leased`, and who waits for a token has to have it from Redis",
    ),
    (
        "terms of a lease",
        "store: {redis: {url: redis://127.0.0.1}}
limits:
  - {name: a, key: ip, algorithm: token_bucket, rate: 5/s, precision: leased, lease: {size: 6, ttl: 2m}}
  - {name: b, key: ip, algorithm: token_bucket, rate: 5/s, precision: leased, lease: {size: 101%}}
  - {name: c, key: ip, algorithm: token_bucket, rate: 5/s, precision: leased, lease: {size: half, tll: 1s}}
  - {name: d, key: ip, algorithm: token_bucket, rate: 5/s, precision: leased, overrides: {values: 10.0.0.1, lease: {size: 1}}}
",
        "3:93: limits[0].lease.size: 6 is more than passes at once, expected at most 5
3:101: limits[0].lease.ttl: 2m is out of range, expected 100ms to 1m
4:93: limits[1].lease.size: `101%` is no percentage, expected `1%` to `100%`, or a number
5:93: limits[2].lease.size: `half` is not a whole number, expected digits only, or a percentage such as `1%`
5:99: limits[2].lease.tll: unknown key, did you mean `ttl`?
6:109: limits[3].overrides.lease: unknown key for `token_bucket`, expected `rate`, `burst`, `max_wait` or `warm_up`; `lease` belongs to `concurrency`, or to a layer that says `precision: leased`",
    ),
    (
        "bans",
        "limits:
  - {name: a, key: ip, algorithm: token_bucket, rate: 5/s, ban: {afer: 3}}
  - {name: b, key: ip, algorithm: token_bucket, rate: 5/s, ban: {after: 0, within: 0s, for: []}}
  - {name: c, key: ip, algorithm: token_bucket, rate: 5/s, ban: {after: 3, within: 4000d, for: [1m, 10]}}
  - {name: d, key: ip, algorithm: token_bucket, rate: 5/s, ban: 15m}
",
        "2:60: limits[0].ban.within: is missing, expected a duration such as `250ms`, `10s` or `1h`
2:60: limits[0].ban.for: is missing, expected a duration such as `10m`, or a list of these
2:66: limits[0].ban.afer: unknown key, did you mean `after`?
3:73: limits[1].ban.after: 0 is out of range, expected 1 to 1000000
3:84: limits[1].ban.within: must be more than 0
3:93: limits[1].ban.for: is empty, expected at least one duration
4:84: limits[2].ban.within: 4000d is too long, expected at most 3650d
4:101: limits[2].ban.for[1]: 10 has no unit, expected a duration such as `10s`
5:65: limits[3].ban: is a text, expected a mapping with `after`, `within` and `for`",
    ),
    (
        "section of a later version",
        "tracing: {sample: 0.1}\n",
        "1:1: tracing: `tracing` is not supported by this version yet",
    ),
    (
        "tokens that nobody can believe",
        "jwt: {issuer: '', audience: []}
limits:
  - {name: a, key: jwt, algorithm: fixed_window, limit: 1, window: 1s}
  - {name: b, key: jwr:sub, algorithm: fixed_window, limit: 1, window: 1s}
",
        "1:1: jwt.jwks_file: is missing, expected `jwks_file` or `jwks_url`
1:15: jwt.issuer: is empty, expected a text
1:29: jwt.audience: is empty, expected at least one text
3:20: limits[0].key: `jwt` names no claim, expected `jwt:CLAIM`
4:20: limits[1].key: `jwr:sub` is no key, did you mean `jwt:sub`?",
    ),
    (
        "keys by another protocol",
        "jwt: {jwks_url: 'ftp://id.example.com/jwks.json'}\n",
        "1:17: jwt.jwks_url: `ftp://id.example.com/jwks.json` is not a URL, expected one such as `https://id.example.com/jwks.json`",
    ),
    (
        "keys at no URL",
        "jwt: {jwks_url: 'http://u:p@h/', jwks_file: ''}\n",
        "1:7: jwt.jwks_url: stands beside `jwks_file`, expected one of them
1:17: jwt.jwks_url: a URL with a user, expected one such as `https://id.example.com/jwks.json`
1:45: jwt.jwks_file: is empty, expected the path of a file",
    ),
    (
        "claims of tokens of which nothing is said",
        "limits:
  - {name: a, key: [ip, \"jwt:sub\"], algorithm: fixed_window, limit: 1, window: 1s}
",
        "2:25: limits[0].key[1]: needs to know which tokens are believed, expected a section `jwt`",
    ),
    (
        "window without a unit",
        "limits:
  - name: user
    key: ip
    algorithm: fixed_window
    limit: 5
    window: 60
",
        "6:13: limits[0].window: 60 has no unit, expected a duration such as `60s`",
    ),
    (
        "window in an unknown unit",
        "limits:
  - name: user
    key: ip
    algorithm: fixed_window
    limit: 5
    window: 1min
",
        "6:13: limits[0].window: `1min` is not a duration, expected a whole number and a unit (ms, s, m, h, d or w) such as `250ms` or `1h`",
    ),
    (
        "fraction of a second",
        "limits:
  - name: user
    key: ip
    algorithm: fixed_window
    limit: 5
    window: 1.5s
",
        "6:13: limits[0].window: `1.5s` is not a duration, expected a whole number and a unit (ms, s, m, h, d or w) such as `250ms` or `1h`",
    ),
    (
        "window of months",
        "limits:
  - name: user
    key: ip
    algorithm: sliding_window_log
    limit: 5
    window: 1mo
",
        "6:13: limits[0].window: `1mo`: only a `window` of `fixed_window` can be a month",
    ),
    (
        "window of two months",
        "limits:
  - name: user
    key: ip
    algorithm: fixed_window
    limit: 5
    window: 2mo
",
        "6:13: limits[0].window: `2mo`: windows are one month long, expected `1mo`",
    ),
    (
        "rate by the month",
        "limits:
  - name: user
    key: ip
    algorithm: token_bucket
    rate: 5/1mo
",
        "5:11: limits[0].rate: `1mo`: only a `window` of `fixed_window` can be a month",
    ),
    (
        "month that begins with a request",
        "limits:
  - name: user
    key: ip
    algorithm: fixed_window
    limit: 5
    window: 1mo
    align: first_request
",
        "6:13: limits[0].window: `1mo` is a month of the calendar, expected a duration such as `30d` with `align: first_request`",
    ),
    (
        "time zone with a letter wrong",
        "limits:
  - name: user
    key: ip
    algorithm: fixed_window
    limit: 5
    window: 1d
    timezone: Europe/Berlim
",
        "7:15: limits[0].timezone: `Europe/Berlim` is no time zone, did you mean `Europe/Berlin`?",
    ),
    (
        "time zone by its city",
        "limits:
  - name: user
    key: ip
    algorithm: fixed_window
    limit: 5
    window: 1d
    timezone: New York
",
        "7:15: limits[0].timezone: `New York` is no time zone, did you mean `America/New_York`?",
    ),
    (
        "time zone like none",
        "limits:
  - name: user
    key: ip
    algorithm: fixed_window
    limit: 5
    window: 1d
    timezone: PST
",
        "7:15: limits[0].timezone: `PST` is no time zone, expected a name of the IANA database such as `Europe/Berlin`",
    ),
    (
        "time zone of hours",
        "limits:
  - name: user
    key: ip
    algorithm: fixed_window
    limit: 5
    window: 36h
    timezone: Europe/Berlin
",
        "7:15: limits[0].timezone: `Europe/Berlin` has no windows of such a length, expected whole days or weeks, or `1mo`, as the `window`",
    ),
    (
        "time zone of first requests",
        "limits:
  - name: user
    key: ip
    algorithm: fixed_window
    limit: 5
    window: 1d
    align: first_request
    timezone: Europe/Berlin
",
        "8:15: limits[0].timezone: `Europe/Berlin` says nothing with `align: first_request`, expected `align: clock`",
    ),
    (
        "rate without a time",
        "limits:
  - name: user
    key: ip
    algorithm: token_bucket
    rate: 100
",
        "5:11: limits[0].rate: 100 has no time, expected a rate such as `100/s`",
    ),
    (
        "rate in words",
        "limits:
  - name: user
    key: ip
    algorithm: token_bucket
    rate: 100 per second
",
        "5:11: limits[0].rate: `100 per second` is not a rate, expected a whole number and a time such as `100/s`, `5/h` or `3/10s`",
    ),
    (
        "rate in an unknown unit",
        "limits:
  - name: user
    key: ip
    algorithm: token_bucket
    rate: 100/sec
",
        "5:11: limits[0].rate: `100/sec` is not a rate, expected a whole number and a time such as `100/s`, `5/h` or `3/10s`",
    ),
    (
        "size in an unknown unit",
        "server: {max_header_bytes: 64kb}\n",
        "1:28: server.max_header_bytes: `64kb` is not a size, expected a whole number and a unit (B, KiB, MiB or GiB) such as `64KiB`",
    ),
    (
        "list for a number",
        "limits:
  - name: user
    key: ip
    algorithm: fixed_window
    limit: [5]
    window: 1m
",
        "5:12: limits[0].limit: is a list, expected a whole number",
    ),
    (
        "mapping for a section",
        "upstreams:
  - app
",
        "2:3: upstreams: is a list, expected a mapping from names to values",
    ),
    (
        "text for a mapping",
        "server: fast\n",
        "1:9: server: is a text, expected a mapping with keys such as `header_timeout` and `drain`",
    ),
    (
        "nothing for a section",
        "limits:
routes: []
",
        "1:1: limits: has no value, expected a mapping with `name`, `key` and `algorithm`, or a list",
    ),
    (
        "number for a name",
        "limits:
  - name: 404
    key: ip
    algorithm: token_bucket
    rate: 5/s
",
        "2:11: limits[0].name: 404 is a number, expected a text; put it in quotes",
    ),
    (
        "leading zero",
        "limits:
  - name: user
    key: ip
    algorithm: fixed_window
    limit: 010
    window: 1m
",
        "5:12: limits[0].limit: `010` begins with a zero, expected `10`",
    ),
    (
        "limit of zero",
        "limits:
  - name: user
    key: ip
    algorithm: fixed_window
    limit: 0
    window: 1m
",
        "5:12: limits[0].limit: must be more than 0",
    ),
    (
        "window of zero",
        "limits:
  - name: user
    key: ip
    algorithm: fixed_window
    limit: 5
    window: 0s
",
        "6:13: limits[0].window: must be more than 0",
    ),
    (
        "rate of zero",
        "limits:
  - name: user
    key: ip
    algorithm: token_bucket
    rate: 0/s
",
        "5:11: limits[0].rate: `0/s` is nothing, expected a rate of more than 0",
    ),
    (
        "negative limit",
        "limits:
  - name: user
    key: ip
    algorithm: fixed_window
    limit: -5
    window: 1m
",
        "5:12: limits[0].limit: -5 is negative, expected a whole number of 0 or more",
    ),
    (
        "number beyond 2^53",
        "limits:
  - name: user
    key: ip
    algorithm: fixed_window
    limit: 9007199254740992
    window: 1m
",
        "5:12: limits[0].limit: 9007199254740992 is too large, expected at most 9007199254740991 (2^53 - 1)",
    ),
    (
        "number beyond 2^64",
        "limits:
  - name: user
    key: ip
    algorithm: fixed_window
    limit: 99999999999999999999999
    window: 1m
",
        "5:12: limits[0].limit: 99999999999999999999999 is too large, expected at most 9007199254740991 (2^53 - 1)",
    ),
    (
        "fractional cost",
        "limits:
  - name: user
    key: ip
    algorithm: token_bucket
    rate: 5/s
    cost: 1.5
",
        "6:11: limits[0].cost: 1.5 is not a whole number, expected one such as `10`",
    ),
    (
        "negative cost",
        "limits:
  - name: user
    key: ip
    algorithm: token_bucket
    rate: 5/s
    cost: -1
",
        "6:11: limits[0].cost: -1 is negative, expected a whole number of 0 or more",
    ),
    (
        "cost above the burst",
        "limits:
  - name: user
    key: ip
    algorithm: token_bucket
    rate: 5/s
    cost: 6
",
        "6:11: limits[0].cost: 6 never fits, expected at most 5, which is all that passes at once",
    ),
    (
        "word that is none",
        "limits:
  - name: user
    key: ip
    algorithm: FixedWindow
    limit: 5
    window: 1m
",
        "4:16: limits[0].algorithm: `FixedWindow` is not known here, did you mean `fixed_window`?",
    ),
    (
        "bucket that cannot be exact",
        "limits:
  - name: user
    key: ip
    algorithm: token_bucket
    rate: 1/104249d
    burst: 10
",
        "5:11: limits[0].rate: cannot be counted exactly: rate must be at most 259200000s",
    ),
    (
        "log that is too long",
        "limits:
  - name: user
    key: ip
    algorithm: sliding_window_log
    limit: 100001
    window: 1m
",
        "5:12: limits[0].limit: cannot be counted exactly: limit must be at most 100000",
    ),
    (
        "wait that cannot be counted",
        "limits:
  - name: user
    key: ip
    algorithm: token_bucket
    rate: 1000000000000/s
    max_wait: 3h
",
        "6:15: limits[0].max_wait: cannot be counted exactly: max_wait must be at most 9006.199254s",
    ),
    (
        "warm-ups",
        "limits:
  - name: user
    key: ip
    algorithm: token_bucket
    rate: 5/s
    warm_up: 0s
  - name: queued
    key: ip
    algorithm: token_bucket
    rate: 5/s
    max_wait: 1s
    warm_up: 10s
  - name: large
    key: ip
    algorithm: token_bucket
    rate: 1/1d
    burst: 6950
    warm_up: 1h
  - name: leaky
    key: ip
    algorithm: leaky_bucket
    rate: 5/s
    warm_up: 1h
  - name: priced
    key: ip
    algorithm: token_bucket
    rate: 5/s
    cost: header:x-cost
    warm_up: 1h
",
        "6:14: limits[0].warm_up: must be more than 0
12:14: limits[1].warm_up: excludes `max_wait`: nobody waits for a bucket to warm up
17:12: limits[2].burst: cannot be counted exactly: burst must be at most 6949
23:5: limits[3].warm_up: unknown key for `leaky_bucket`, expected `rate`, `capacity`, `delay` or `max_delay`; `warm_up` belongs to `token_bucket`
29:14: limits[4].warm_up: needs a `max` of the `cost`: a cold bucket holds what one request can cost",
    ),
    (
        "delay of another algorithm",
        "limits:
  - name: user
    key: ip
    algorithm: token_bucket
    rate: 5/s
    max_delay: 1s
",
        "6:5: limits[0].max_delay: unknown key for `token_bucket`, expected `rate`, `burst`, `max_wait` or `warm_up`; `max_delay` belongs to `leaky_bucket`",
    ),
    (
        "what a limit of concurrency cannot be",
        "limits:
  - name: user
    key: ip
    algorithm: concurrency
    limit: 5
    window: 1s
    cost: 6
    charge: all
    lease: {ttl: 10ms, size: 5}
  - {name: other, key: ip, algorithm: fixed_window, limit: 5, window: 1s, lease: {ttl: 1s}}
  - {name: third, key: ip, algorithm: concurrency, limit: 5, charge: {status: 401}}
",
        "6:5: limits[0].window: unknown key for `concurrency`, expected `limit` or `lease`; `window` belongs to `fixed_window`, `sliding_window_log` or `sliding_window_counter`
7:11: limits[0].cost: 6 never fits, expected at most 5, which is all that passes at once
8:13: limits[0].charge: a request that is refused holds nothing that it could be charged for, expected `allowed`
9:18: limits[0].lease.ttl: 10ms is out of range, expected 100ms to 1h
9:24: limits[0].lease.size: `size` belongs to `precision: leased`
10:75: limits[1].lease: unknown key for `fixed_window`, expected `limit`, `window`, `align` or `timezone`; `lease` belongs to `concurrency`, or to a layer that says `precision: leased`
11:39: limits[2].algorithm: what is in flight is given back when it ends: expected another algorithm, or neither `charge: {status: …}` nor a cost from a response header",
    ),
    (
        "a candidate with a parameter of another algorithm, and one without its own",
        "limits:
  - name: user
    key: ip
    algorithm: token_bucket
    rate: 5/s
    candidate: {algorithm: fixed_window, limit: 5, window: 1m, burst: 3}
  - name: ip
    key: ip
    algorithm: token_bucket
    rate: 5/s
    candidate: {algorithm: token_bucket}
",
        "6:64: limits[0].candidate.burst: unknown key for `fixed_window`, expected `limit`, `window`, `align` or `timezone`; \
         `burst` belongs to `token_bucket`
11:5: limits[1].candidate.rate: is missing, expected a rate such as `100/s` or `3/10s`",
    ),
    (
        "costs from headers",
        "limits:
  - {name: a, key: ip, algorithm: fixed_window, limit: 5, window: 1s, cost: \"header:x y\"}
  - {name: b, key: ip, algorithm: fixed_window, limit: 5, window: 1s, cost: header}
  - {name: c, key: ip, algorithm: fixed_window, limit: 5, window: 1s, cost: {}}
  - {name: d, key: ip, algorithm: fixed_window, limit: 5, window: 1s, cost: {header: a, response_header: b}}
  - {name: e, key: ip, algorithm: fixed_window, limit: 5, window: 1s, cost: {header: a, estimate: 2, default: 3, max: 2}}
  - {name: f, key: ip, algorithm: fixed_window, limit: 5, window: 1s, cost: {response_header: a, max: 2, estimate: 0}}
  - {name: g, key: ip, algorithm: fixed_window, limit: 5, window: 1s, cost: {header: a, default: 6}}
  - {name: h, key: ip, algorithm: fixed_window, limit: 5, window: 1s, cost: {response_header: a, estimate: 6}}
",
        "2:77: limits[0].cost: `x y` is not the name of a header, expected one such as `x-user-id`
3:77: limits[1].cost: `header` is no cost, expected a whole number or `header:NAME`
4:71: limits[2].cost.header: is missing, expected `header` or `response_header`
5:77: limits[3].cost: names two headers, expected either `header` or `response_header`
6:89: limits[4].cost.estimate: `estimate` belongs to `response_header`
6:119: limits[4].cost.max: 2 is below the default of 3, expected at least that
7:98: limits[5].cost.max: `max` belongs to `header`
7:116: limits[5].cost.estimate: must be more than 0
8:98: limits[6].cost.default: 6 never fits, expected at most 5, which is all that passes at once
9:108: limits[7].cost.estimate: 6 never fits, expected at most 5, which is all that passes at once",
    ),
    (
        "charges by status",
        "limits:
  - {name: a, key: ip, algorithm: fixed_window, limit: 5, window: 1s, charge: {status: []}}
  - {name: b, key: ip, algorithm: fixed_window, limit: 5, window: 1s, charge: {status: [401, 40, ok]}}
  - {name: c, key: ip, algorithm: fixed_window, limit: 5, window: 1s, charge: {}}
  - {name: d, key: ip, algorithm: fixed_window, limit: 5, window: 1s, charge: {statuses: 401}}
  - {name: e, key: ip, algorithm: fixed_window, limit: 5, window: 1s, charge: none}
",
        "2:88: limits[0].charge.status: is empty, expected at least one status
3:94: limits[1].charge.status[1]: 40 is out of range, expected 200 to 599
3:98: limits[1].charge.status[2]: `ok` is not a whole number, expected digits only
4:71: limits[2].charge.status: is missing, expected a status, or a list
5:80: limits[3].charge.statuses: unknown key, did you mean `status`?
6:79: limits[4].charge: `none` is not known here, expected `allowed` or `all`",
    ),
    (
        "queues that are to give back",
        "limits:
  - {name: a, key: ip, algorithm: leaky_bucket, rate: 5/s, charge: {status: 401}}
  - {name: b, key: ip, algorithm: leaky_bucket, rate: 5/s, cost: {response_header: a}}
  - name: c
    key: ip
    algorithm: leaky_bucket
    rate: 5/s
    delay: false
    charge: {status: 401}
    candidate: {algorithm: leaky_bucket, rate: 6/s}
    overrides:
      - {values: 10.0.0.0/8, delay: true}
",
        "2:35: limits[0].algorithm: units of a queue cannot be given back, since those who wait have their turns: expected `delay: false`, another algorithm, or neither `charge: {status: …}` nor a cost from a response header
3:35: limits[1].algorithm: units of a queue cannot be given back, since those who wait have their turns: expected `delay: false`, another algorithm, or neither `charge: {status: …}` nor a cost from a response header
10:16: limits[2].candidate: units of a queue cannot be given back, since those who wait have their turns: expected `delay: false`, another algorithm, or neither `charge: {status: …}` nor a cost from a response header
12:9: limits[2].overrides[0]: units of a queue cannot be given back, since those who wait have their turns: expected `delay: false`, another algorithm, or neither `charge: {status: …}` nor a cost from a response header",
    ),
    (
        "a shadow that is charged for refusals",
        "limits:
  - name: user
    key: ip
    algorithm: token_bucket
    rate: 5/s
    mode: shadow
    charge: all
",
        "7:13: limits[0].charge: a shadow refuses nothing that it could be charged for, expected `allowed`",
    ),
    (
        "name with a space",
        "limits:
  - {name: a b, key: ip, algorithm: token_bucket, rate: 5/s}
",
        "2:12: limits[0].name: `a b` is not a name, expected 1 to 64 letters, digits, `_`, `.` or `-`",
    ),
    (
        "key without a name",
        "limits:
  - {name: a, key: 'header:', algorithm: token_bucket, rate: 5/s}
",
        "2:20: limits[0].key: `header:` names no header, expected `header:NAME`",
    ),
    (
        "key that is misspelled",
        "limits:
  - {name: a, key: 'headr:x-user', algorithm: token_bucket, rate: 5/s}
",
        "2:20: limits[0].key: `headr:x-user` is no key, did you mean `header:x-user`?",
    ),
    (
        "key twice",
        "limits:
  - {name: a, key: [ip, ip], algorithm: token_bucket, rate: 5/s}
",
        "2:25: limits[0].key[1]: the same part a second time, expected it once",
    ),
    (
        "layer without a key",
        "limits:
  - name: a
    algorithm: token_bucket
    rate: 5/s
",
        "2:5: limits[0].key: is missing, expected `global`, `ip`, `path`, `route`, `method`, `host`, `header:NAME`, `cookie:NAME`, `query:NAME` or `jwt:CLAIM`, or a list of these",
    ),
    (
        "layer without a rate",
        "limits:
  - name: user
    key: ip
    algorithm: token_bucket
",
        "2:5: limits[0].rate: is missing, expected a rate such as `100/s` or `3/10s`",
    ),
    (
        "upstream without endpoints",
        "upstreams:
  app:
    timeout: 1s
",
        "2:3: upstreams.app.endpoints: is missing, expected a URL such as `http://127.0.0.1:8000`, or a list of them",
    ),
    (
        "route without a target",
        "routes:
  - name: a
    path: /a
",
        "2:5: routes[0].upstream: is missing, expected `upstream` or `respond`",
    ),
    (
        "upstream that is not there",
        "upstreams:
  orders: {endpoints: http://127.0.0.1:1}
routes:
  - path: /
    upstream: order
",
        "5:15: routes[0].upstream: there is no upstream `order`, did you mean `orders`?",
    ),
    (
        "no upstreams at all",
        "routes:
  - path: /
    upstream: orders
",
        "3:15: routes[0].upstream: there is no upstream `orders`, expected it in `upstreams`",
    ),
    (
        "layers of one name",
        "limits:
  - name: user
    key: ip
    algorithm: token_bucket
    rate: 5/s
  - name: user
    key: global
    algorithm: token_bucket
    rate: 5/s
",
        "6:11: limits[1].name: `user` is the name of limits[0] too, expected another name",
    ),
    (
        "routes of one name",
        "routes:
  - {name: a, path: /a, respond: {}}
  - {name: a, path: /b, respond: {}}
",
        "3:12: routes[1].name: `a` is the name of routes[0] too, expected another name",
    ),
    (
        "upstreams of one name",
        "upstreams:
  app: {endpoints: http://127.0.0.1:1}
  app: {endpoints: http://127.0.0.1:2}
",
        "3:3: upstreams.app: `app` stands here a second time, expected it once",
    ),
    (
        "key written twice",
        "limits:
  - name: user
    key: ip
    algorithm: token_bucket
    rate: 5/s
    rate: 6/s
",
        "6:5: limits[0].rate: `rate` stands here a second time, expected it once",
    ),
    (
        "two targets",
        "upstreams: {a: {endpoints: http://127.0.0.1:1}}
routes:
  - path: /
    upstream: a
    respond: {}
",
        "5:5: routes[0].respond: a second target, expected one of `upstream` and `respond`",
    ),
    (
        "host for an address",
        "listen: localhost:8080\n",
        "1:9: listen: `localhost:8080` is not an address, expected IP:PORT such as `127.0.0.1:8080`",
    ),
    (
        "admin without a token",
        "admin: 0.0.0.0:9090\n",
        "1:8: admin: `0.0.0.0:9090` can be reached from outside, expected `{address: \"0.0.0.0:9090\", token: …}` or 127.0.0.1",
    ),
    (
        "one address for both",
        "listen: 127.0.0.1:9090\n",
        "1:9: listen: `127.0.0.1:9090` is both `listen` and `admin`, expected different addresses",
    ),
    (
        "one address for both, by a wildcard",
        "listen: 0.0.0.0:9090\n",
        "1:9: listen: `listen` at `0.0.0.0:9090` and `admin` at `127.0.0.1:9090` cover each other, expected different ports",
    ),
    (
        "a header that must have two values",
        "limits:
  - {name: a, key: ip, algorithm: fixed_window, limit: 1, window: 1s, match: {headers: {x-a: b, X-A: c}}}
",
        "2:97: limits[0].match.headers.X-A: `x-a` stands here a second time, expected it once",
    ),
    (
        "endpoint with a path",
        "upstreams:
  app: {endpoints: 'http://127.0.0.1:8000/api'}
",
        "2:20: upstreams.app.endpoints: `http://127.0.0.1:8000/api` has a path, expected only scheme, host and port: the request's path is forwarded",
    ),
    (
        "endpoint over TLS",
        "upstreams:
  app: {endpoints: https://10.0.0.1}
",
        "2:20: upstreams.app.endpoints: `https://` is not supported by this version yet, expected one such as `http://127.0.0.1:8000`",
    ),
    (
        "network that is none",
        "client_ip:
  trusted_proxies: [10.0.0.0/33]
",
        "2:21: client_ip.trusted_proxies[0]: `10.0.0.0/33` is not an address range, expected one such as `10.0.0.0/8`, `2001:db8::/32` or `192.0.2.1`",
    ),
    (
        "Redis by another name",
        "store: {redis: {url: 'valkey://:secret@10.0.0.1:6379'}}\n",
        "1:22: store.redis.url: `valkey://` is not Redis, expected one such as `redis://127.0.0.1:6379/0`",
    ),
    (
        "path without a slash",
        "routes:
  - {path: v1, respond: {}}
",
        "2:12: routes[0].path: `v1` does not begin with a slash, expected `/v1`",
    ),
    (
        "glob in a route",
        "routes:
  - {path: /v1/*, respond: {}}
",
        "2:12: routes[0].path: `*` is a glob, expected `{name}` for one segment or `{*rest}` for the rest",
    ),
    (
        "rest in the middle",
        "routes:
  - {path: '/{*all}/x', respond: {}}
",
        "2:12: routes[0].path: `{*all}` takes the rest of the path, expected it to stand last",
    ),
    (
        "method in lower case",
        "routes:
  - {path: /, methods: get, respond: {}}
",
        "2:24: routes[0].methods: `get` is not a method, expected `GET`: methods are case-sensitive",
    ),
    (
        "stars with text",
        "limits:
  - name: user
    key: ip
    algorithm: token_bucket
    rate: 5/s
    match: {path: /v1**}
",
        "6:19: limits[0].match.path: `v1**` mixes `**` with text, expected `**` as a whole segment such as `/v1/**`",
    ),
    (
        "paths that no request has",
        "routes:
  - {path: /a%5Cb, respond: {}}
limits:
  - name: user
    key: ip
    algorithm: token_bucket
    rate: 5/s
    match: {path: /a/%2e%2E/b}
",
        "2:12: routes[0].path: `/a%5Cb` matches nothing, expected another: the path has a backslash
8:19: limits[0].match.path: `/a/%2e%2E/b` has a dot segment, expected none: requests' paths are normalised",
    ),
    (
        "TLS of a Redis without",
        "store: {redis: {url: 'redis-cluster://a,b', tls: {}}}\n",
        "1:45: store.redis.tls: nothing is encrypted, expected `rediss-cluster://` in the URL",
    ),
    (
        "half of a certificate, which is not there",
        "store: {redis: {url: rediss://a, tls: {cert: none.pem}}}\n",
        "1:34: store.redis.tls.key: is missing, expected the file of the certificate's private key
1:46: store.redis.tls.cert: `none.pem` cannot be read: No such file or directory (os error 2)",
    ),
    (
        "several hosts of one Redis",
        "store: {redis: {url: 'redis://:secret@a,b'}}\n",
        "1:22: store.redis.url: it names several hosts: that needs `redis-cluster://` or `redis-sentinel://`, expected one such as `redis://127.0.0.1:6379/0`",
    ),
    (
        "sentinels of nothing",
        "store: {redis: {url: 'redis-sentinel://:secret@a,b'}}\n",
        "1:22: store.redis.url: the name that the sentinels have for the primary is missing after the `/`, expected one such as `redis://127.0.0.1:6379/0`",
    ),
    (
        "Redis without a URL",
        "store: {redis: {prefix: a}}\n",
        "1:9: store.redis.url: is missing, expected a URL such as `redis://127.0.0.1:6379/0`",
    ),
    (
        "tab in the indentation",
        "server:\n	drain: 1s\n",
        "2:1: a tab in the indentation, expected spaces",
    ),
    (
        "tab in the indentation, after a value",
        "server:\n  drain: 1s\n\tworkers: 1\n",
        "3:1: a tab in the indentation, expected spaces",
    ),
    (
        "bracket that is not closed",
        "listen: [127.0.0.1:8080
admin: 127.0.0.1:9090
",
        "2:6: not YAML: illegal placement of ':' indicator",
    ),
    (
        "key of a rejection",
        "responses: {rejection: {stauts: 503}}
",
        "1:25: responses.rejection.stauts: unknown key, did you mean `status`?",
    ),
    (
        "status that refuses nothing",
        "responses: {rejection: {status: 200}}
",
        "1:33: responses.rejection.status: 200 is out of range, expected 400 to 599",
    ),
    (
        "word for a body",
        "responses: {rejection: {body: json}}
",
        "1:31: responses.rejection.body: `json` is not known here, expected `problem`",
    ),
    (
        "body without its type, with a key too many",
        "responses:
  rejection:
    body:
      template: no
      charset: utf-8
",
        "3:5: responses.rejection.body.content_type: is missing, expected a media type such as `text/html; charset=utf-8`
5:7: responses.rejection.body.charset: unknown key, expected `content_type` or `template`",
    ),
    (
        "type of nothing",
        "responses: {rejection: {body: {content_type: json, template: no}}}
",
        "1:46: responses.rejection.body.content_type: `json` is not a media type, expected one such as `text/html; charset=utf-8`",
    ),
    (
        "variable of a template",
        "limits:
  - name: user
    key: ip
    algorithm: token_bucket
    rate: 5/s
    rejection:
      body: {content_type: text/plain, template: 'wait {{retry-after}} s'}
",
        "7:50: limits[0].rejection.body.template: there is no variable `retry-after`, did you mean `retry_after`?",
    ),
    (
        "variable that is not closed",
        "responses: {rejection: {body: {content_type: text/plain, template: '{{limit}'}}}
",
        "1:68: responses.rejection.body.template: `{{` is not closed, expected `}}` behind a name, or `{{{{` for two braces",
    ),
    (
        "template that makes no JSON",
        "responses: {rejection: {body: {content_type: application/json, template: '{\"layer\": {{layer}}'}}}
",
        "1:74: responses.rejection.body.template: with values it is not JSON (EOF while parsing an object at line 1 column 16), expected JSON",
    ),
    (
        "upstream of a rejection",
        "upstreams: {orders: {endpoints: http://127.0.0.1:8000}}
responses: {rejection: {upstream: order}}
",
        "2:35: responses.rejection.upstream: there is no upstream `order`, did you mean `orders`?",
    ),
    (
        "upstream and an answer",
        "upstreams: {orders: {endpoints: http://127.0.0.1:8000}}
responses: {rejection: {upstream: orders, status: 503, body: problem}}
",
        "2:43: responses.rejection.status: `status` beside `upstream`, which answers instead, expected one of them
2:56: responses.rejection.body: `body` beside `upstream`, which answers instead, expected one of them",
    ),
    (
        "CORS for nobody in particular",
        "responses: {cors: {}}
",
        "1:13: responses.cors.allow_origin: is missing, expected `*`, an origin such as `https://app.example.org`, or a list of origins",
    ),
    (
        "origins that browsers never send",
        "responses:
  cors:
    allow_origin: [a.example, https://a.example/, 'HTTPS://A.example:443', 'https://*.a.example', 'null', https://a.example/x]
",
        "3:20: responses.cors.allow_origin[0]: `a.example` is not an origin, expected `*`, or one such as `https://app.example.org`
3:31: responses.cors.allow_origin[1]: `https://a.example/` is not what browsers send, expected `https://a.example`
3:51: responses.cors.allow_origin[2]: `HTTPS://A.example:443` is not what browsers send, expected `https://a.example`
3:76: responses.cors.allow_origin[3]: `https://*.a.example` is not an origin, expected `*`, or one such as `https://app.example.org`
3:99: responses.cors.allow_origin[4]: `null` is every page without an origin, also an attacker's, expected `*`, or one such as `https://app.example.org`
3:107: responses.cors.allow_origin[5]: `https://a.example/x` is not an origin, expected `*`, or one such as `https://app.example.org`",
    ),
    (
        "everybody and somebody",
        "responses: {cors: {allow_origin: [https://a.example, '*']}}
",
        "1:54: responses.cors.allow_origin[1]: `*` is everybody, expected it alone",
    ),
    (
        "no origin",
        "responses: {cors: {allow_origin: []}}
",
        "1:34: responses.cors.allow_origin: is empty, expected at least one origin",
    ),
    (
        "line at the wrong depth",
        "limits:
  - name: a
   key: ip
",
        "3:4: not YAML: while parsing a block collection, did not find expected '-' indicator",
    ),
    (
        "quote that is not closed",
        "listen: \"127.0.0.1\n",
        "1:9: not YAML: while scanning a quoted scalar, found unexpected end of stream",
    ),
    (
        "two documents",
        "listen: 127.0.0.1:8080
---
listen: 127.0.0.1:8081
",
        "2:1: a second document begins here, expected one",
    ),
    (
        "alias of nothing",
        "listen: *nothing\n",
        "1:9: not YAML: while parsing node, found unknown anchor",
    ),
    (
        "what overrides say",
        "limits:
  - name: user
    key: header:x-user-id
    algorithm: token_bucket
    rate: 5/s
    cost: 2
    overrides:
      - {values: a, rate: 0/s}
      - {values: b, limit: 5}
      - {values: c}
      - {values: d, rat: 9/s}
      - {values: e, deny: true, burst: 9}
      - {values: f, burst: 1}
      - {unlimited: true}
      - {values: [], deny: true}
      - {values: h, deny: maybe}
",
        "8:27: limits[0].overrides[0].rate: `0/s` is nothing, expected a rate of more than 0
9:21: limits[0].overrides[1].limit: unknown key for `token_bucket`, expected `rate`, `burst`, `max_wait` or `warm_up`; `limit` belongs to `fixed_window`, `sliding_window_log`, `sliding_window_counter` or `concurrency`
10:9: limits[0].overrides[2]: says nothing of its values, expected parameters of the algorithm, `unlimited: true` or `deny: true`
11:21: limits[0].overrides[3].rat: unknown key, did you mean `rate`?
12:9: limits[0].overrides[4]: says several things at once, expected parameters of the algorithm, `unlimited: true` or `deny: true`
13:9: limits[0].overrides[5]: the layer's cost of 2 never fits, expected at least that much to pass at once, not 1
14:9: limits[0].overrides[6].values: is missing, expected a value of the layer's key, or a list
15:18: limits[0].overrides[7].values: is empty, expected at least one value
16:27: limits[0].overrides[8].deny: `maybe` is neither, expected `true` or `false`",
    ),
    (
        "values of overrides",
        "client_ip: {ipv4_prefix: 24}
limits:
  - name: user
    key: [header:x-user-id, route]
    algorithm: fixed_window
    limit: 5
    window: 1s
    overrides:
      - {values: [alice, 7, \"alice|orders\"], limit: 9}
  - name: ip
    key: ip
    algorithm: fixed_window
    limit: 5
    window: 1s
    overrides:
      - {values: [10.0.0.1, 10.0.0.0/8, here], limit: 9}
",
        "9:19: limits[0].overrides[0].values[0]: `alice` has 1 of the 2 parts of the key, expected all, joined by `|`
9:26: limits[0].overrides[0].values[1]: 7 is a number, expected a text; put it in quotes
16:19: limits[1].overrides[0].values[0]: `10.0.0.1` is narrower than what is counted apart, expected `/24` of IPv4, `/64` of IPv6
16:41: limits[1].overrides[0].values[2]: `here` is not an address range, expected one such as `10.0.0.0/8`, `2001:db8::/32` or `192.0.2.1`",
    ),
    (
        "alias of itself",
        "listen: &a [*a]\n",
        "1:13: listen[0]: an alias inside of the value that it stands for",
    ),
    (
        "tag",
        "listen: !!python/object:os.system x\n",
        "1:9: listen: a YAML tag, expected a plain value",
    ),
    ("empty file", "", "1:1: the file is empty, expected a configuration"),
    (
        "comments only",
        "# nothing\n",
        "1:1: the file is empty, expected a configuration",
    ),
    (
        "list for a file",
        "- a\n",
        "1:1: is a list, expected a mapping with keys such as `listen`, `upstreams`, `routes` and `limits`",
    ),
    (
        "text for a file",
        "hello\n",
        "1:1: is a text, expected a mapping with keys such as `listen`, `upstreams`, `routes` and `limits`",
    ),
    (
        "variable that is not set",
        "listen: ${NOT_SET}\n",
        "1:9: listen: the environment variable `NOT_SET` is not set, expected it or a default as in `${NOT_SET:-default}`",
    ),
];
