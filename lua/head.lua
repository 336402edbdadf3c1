#!lua flags=allow-oom
-- What the algorithms and the driver share. README.md has the calling convention.

-- All numbers are whole and below 2 ^ 53, so that doubles hold them exactly. What is stored may be anything: each number
-- is compared with its bounds, in a way that NaN fails. (A constant costs nothing; a local that functions share does.)

local call, read, write = redis.call, struct.unpack, struct.pack

-- Packed parameters of the policies, and what is stored under each key: a string, or false.
local policies, states = ARGV[1], nil

-- What an algorithm holds of a key between load and save. KEYS is the cheapest way to a table of the right size.
local held = {unpack(KEYS)}

-- Keys that are written though nothing is taken: true where they are settled, their parameters changed, or the clock
-- stepped back; a number where that many ms of life are needed, and they have less.
local rewrite = {}

-- Keys of logs: functions that tell the time of the unit that a cost waits for.
local awaited = {}

-- Values that were no state of their algorithm, and that were replaced.
local replaced = 0

-- Id of an algorithm -> function: reads a policy's parameters at a position of `policies`, and returns
--   load(i, units, taken): settles key i to now and returns the whole units that are free. With a settlement, it is
--   applied: units are taken without asking, or given back where `taken` is not 0 but when they were taken; what is in
--   `states` then is what would be loaded.
--   save(i, used, ttl): writes key i with that many units more used, or deletes it where nothing is left
--   and the position after the parameters. Or nothing, if the parameters are not for now: the call does nothing then.
local algorithms = {}

-- Writes key i, which read as absent. What else is there goes, and is counted.
local function create(i, ttl, state)
  if not call('SET', KEYS[i], state, 'PX', ttl, 'NX') then
    replaced = replaced + 1
    -- However large it is: that alone takes no time to free it.
    call('UNLINK', KEYS[i])
    call('PSETEX', KEYS[i], ttl, state)
  end
end

-- floor(x * y / z) and the remainder, exact for x < 2^53, y <= z < 2^48.
-- A product that a double does not hold is divided digit by digit: a remainder below z, with one more digit of base 16,
-- is below 31 * z < 2^53.
local function mul_div(x, y, z)
  local product = x * y
  if product < 2 ^ 53 then
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
