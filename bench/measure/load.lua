-- What wrk sends. From the environment: USERS and PATHS, that many; PAUSE_MS, of each connection before a request, on
-- average; PORTS, one for each thread.

local users = tonumber(os.getenv("USERS"))
local paths = tonumber(os.getenv("PATHS"))
local pause = tonumber(os.getenv("PAUSE_MS"))
local rest = " HTTP/1.1\r\nHost: bench.local\r\nUser-Agent: bench\r\nAccept: */*\r\nX-User-Id: user-"
local first = "GET /api/v1/resource"

local ports = {}
for port in os.getenv("PORTS"):gmatch("%d+") do
  ports[#ports + 1] = port
end

local threads = 0
function setup(thread)
  threads = threads + 1
  thread:set("seed", threads)
  thread.addr = wrk.lookup("127.0.0.1", ports[(threads - 1) % #ports + 1])[1]
end

function init()
  math.randomseed(seed)
end

function request()
  local user = math.random(0, users - 1)
  return first .. user % paths .. rest .. user .. "\r\n\r\n"
end

if pause > 0 then
  function delay()
    return math.random(0, 2 * pause)
  end
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    'RESULT {"requests": %d, "seconds": %f, "refused": %d, "errors": %d, "p50_ms": %f, "p99_ms": %f}\n',
    summary.requests, summary.duration / 1e6, errors.status, errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
