#!lua flags=allow-oom
-- What the algorithms and the driver share. README.md has the calling convention.

local call, read, write = redis.call, struct.unpack, struct.pack

-- All numbers are whole and at most this, so that doubles hold them exactly.
local EXACT = 2 ^ 53 - 1

-- Windows and periods of rates are shorter than this, in µs.
local SPAN = 2 ^ 48

-- Packed parameters of the policies, and what is stored under each key: a string, or false.
local policies, states = ARGV[1], nil

-- Requests: of each the number of layers, then a key and a cost for each. Settlements, if there are any: of each the
-- key, the units, and when those were taken that are given back (0: they are taken now).
local requests, settlements = cmsgpack.unpack(ARGV[2])

-- What an algorithm holds of a key between load and save. KEYS is the cheapest way to a table of the right size.
local held = {unpack(KEYS)}

-- Keys that are written whatever is decided: settled, or their parameters changed, or the clock stepped back.
local rewrite = {}

-- Keys that have to live for some time yet, in ms, though nothing is written; of all others any expiry will do.
local needs = {}

-- Keys of logs: functions that tell the time of the unit that a cost waits for.
local awaited = {}

-- Values that were no state of their algorithm, and were written over.
local replaced = 0

-- Id of an algorithm -> function: reads a policy's parameters at a position of `policies`, and returns
--   load(i): settles key i to now and returns the whole units that are free
--   save(i, used, ttl): writes key i with that many units more used, or deletes it where none are
--   and the position after the parameters.
local algorithms = {}

-- Where there are settlements, of each policy: settle(i, units, taken) takes units without asking, or gives back those
-- that were taken then; leaves in `states` what would be loaded now, and returns the whole units that are free.
-- (Else there are none: a function costs time to make.)
local settles = {}

-- Whether a number is whole and within bounds. (Nothing compares with NaN, nor is the rest of an infinite number 0.)
local function whole(number, least, most)
  return number % 1 == 0 and number >= least and number <= most
end

-- The string under key i if it is `size` long; any other is treated as absent.
local function stored(i, size)
  local state = states[i]
  if state and #state == size then return state end
  states[i] = false
end

-- Writes key i. If it read as absent and yet something is there, that goes, and is counted.
local function put(i, ttl, state)
  if not states[i] then
    if call('SET', KEYS[i], state, 'PX', ttl, 'NX') then return end
    replaced = replaced + 1
    -- However large it is: PSETEX alone would free it at once.
    call('UNLINK', KEYS[i])
  end
  call('PSETEX', KEYS[i], ttl, state)
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
