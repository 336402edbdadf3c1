#!lua flags=allow-oom
-- What the algorithms and the driver share. README.md has the calling convention.

local call, read, write = redis.call, struct.unpack, struct.pack

-- All numbers are whole and at most this, so that doubles hold them exactly.
local EXACT = 2 ^ 53 - 1

-- Packed parameters of the policies, and what is stored under each key: a string, or false.
local policies, states = ARGV[1], nil

-- What an algorithm holds of a key between load and save. KEYS is the cheapest way to a table of the right size.
local held = {unpack(KEYS)}

-- Keys that are written whatever is decided: their parameters changed, or the clock stepped back.
local rewrite = {}

-- Keys of logs: functions that tell the time of the unit that a cost waits for.
local awaited = {}

-- Id of an algorithm -> function: reads a policy's parameters at a position of `policies`, and returns
--   load(i): settles key i to now and returns the whole units that are free
--   save(i, used, ttl): writes key i with that many units more used
--   and the position after the parameters.
local algorithms = {}

-- The string under key i if it is `size` long; any other is treated as absent.
local function stored(i, size)
  local state = states[i]
  if state and #state == size then return state end
  states[i] = false
end

-- floor(x * y / z) and the remainder, exact for x < 2^53, y <= z < 2^48.
-- A product that a double does not hold is divided digit by digit: a remainder below z, with one more digit of base 16,
-- is below 31 * z < 2^53.
local function mul_div(x, y, z)
  local product = x * y
  if product <= EXACT then
    local rest = product % z
    return (product - rest) / z, rest
  end
  local quotient, rest, place = 0, 0, 16 ^ 13
  while place >= 1 do
    local below = x % place
    rest = rest * 16 + (x - below) / place * y
    local over = rest % z
    quotient = quotient * 16 + (rest - over) / z
    x, rest, place = below, over, place / 16
  end
  return quotient, rest
end
