#!lua flags=allow-oom
-- Bans: counts refusals of keys, bans those that have too many, and tells what has changed. lua/README.md has the
-- calling convention; the reference for the arithmetic is Rust, in limiter-core/src/ban/record.rs. Times are in µs.

local call = redis.call
local log = KEYS[1]
local at = 0

local function argument()
  at = at + 1
  return ARGV[at]
end

local function number()
  return tonumber(argument())
end

-- Lua would write a large number in tenths of a power of ten.
local function text(value)
  return string.format('%.0f', value)
end

local now, not_after, since, page = number(), number(), number(), number()
if now == 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
if not_after > 0 and now > not_after then
  return {}
end

local rules = {}
for i = 1, number() do
  local rule = {after = number(), within = number(), ladder = {}}
  for rung = 0, number() - 1 do
    rule.ladder[rung] = number()
  end
  rule.last = #rule.ladder
  rules[i] = rule
end

-- State: end, rung and length of the last ban (0 0 0: none), then times of refusals, and how many each.
local function read(key)
  local state = {tally = {}}
  local stored = call('MGET', key)[1]
  if not stored or not string.find(stored, '^%d+ %d+ %d+[ %d]*$') then
    return state
  end
  local list = {}
  for digits in string.gmatch(stored, '%d+') do
    list[#list + 1] = tonumber(digits)
  end
  if list[1] > 0 then
    state.till, state.rung, state.length = list[1], list[2], list[3]
  end
  for i = 4, #list - 1, 2 do
    state.tally[#state.tally + 1] = {list[i], list[i + 1]}
  end
  return state
end

-- When it says nothing any more.
local function forget_at(state, rule)
  local last = 0
  for _, entry in ipairs(state.tally) do
    last = math.max(last, entry[1] + rule.within)
  end
  if state.till then
    local memory = rule.last > 0 and state.length * (state.rung + 1) or 0
    last = math.max(last, state.till + memory)
  end
  return last
end

-- Gives the time to live, in ms.
local function write(key, state, rule)
  local live = math.ceil((forget_at(state, rule) - now) / 1000)
  if live <= 0 then
    call('UNLINK', key)
    return 0
  end
  local list = {'0', '0', '0'}
  if state.till then
    list = {text(state.till), text(state.rung), text(state.length)}
  end
  for _, entry in ipairs(state.tally) do
    list[#list + 1] = text(entry[1])
    list[#list + 1] = text(entry[2])
  end
  call('PSETEX', key, text(live), table.concat(list, ' '))
  return live
end

-- The log: keys by the version of their last change, which is about its time; before them one entry that tells this log
-- from one that was lost, by when it was begun. Something else may stand there.
local first = redis.pcall('ZRANGE', log, 0, 0, 'WITHSCORES')
if first.err then
  call('UNLINK', log)
  first = {}
end
local begun = math.min(tonumber(first[2] or 0), 0)
local version = math.max(tonumber(call('ZRANGE', log, 0, 0, 'REV', 'WITHSCORES')[2] or 0), 0)
local changes, live_most = 0, 0

local function changed(key, live)
  version = math.max(version + 1, now)
  changes = changes + 1
  live_most = math.max(live_most, live)
  if begun == 0 then
    begun = -now
    call('ZADD', log, text(begun), '')
  end
  call('ZADD', log, text(version), key)
end

local function settle(state, rule)
  if state.till then
    state.till = math.min(state.till, now + state.length)
  end
  local kept = {}
  for _, entry in ipairs(state.tally) do
    entry[1] = math.min(entry[1], now)
    if entry[1] + rule.within > now then
      kept[#kept + 1] = entry
    end
  end
  state.tally = kept
end

local function next_rung(state, rule, time)
  if not state.till then
    return 0
  end
  local rung = time < state.till and state.rung or state.rung + 1
  local lost = math.floor(math.max(time - state.till, 0) / math.max(state.length, 1))
  return math.min(math.max(rung - lost, 0), rule.last)
end

local function begin(state, rule, time, rung)
  state.till, state.rung, state.length = time + rule.ladder[rung], rung, rule.ladder[rung]
  state.tally = {}
end

local EXACT = 16

-- Whether it is to be written, and whether it is banned for that.
local function refused(state, rule, count, time)
  settle(state, rule)
  if state.till and state.till > now or time + rule.within <= now then
    return false, false
  end
  local last = state.tally[#state.tally]
  if #state.tally >= EXACT and math.max(time - last[1], 0) < math.floor(rule.within / 16) then
    last[1] = math.min(last[1], time)
    last[2] = last[2] + count
  else
    state.tally[#state.tally + 1] = {time, count}
  end
  local sum = 0
  for _, entry in ipairs(state.tally) do
    sum = sum + entry[2]
  end
  if sum >= rule.after then
    begin(state, rule, now, next_rung(state, rule, now))
    return true, true
  end
  return true, false
end

-- Whether it is banned by that, or for longer.
local function offended(state, rule, rung, time)
  settle(state, rule)
  rung = math.min(rung, rule.last)
  if state.till and state.till > now then
    local longer = time + rule.ladder[rung] > state.till
    if longer then
      begin(state, rule, time, math.max(rung, math.min(state.rung, rule.last)))
    end
    return longer
  end
  begin(state, rule, time, math.max(rung, next_rung(state, rule, time)))
  return true
end

local lifted = 0
for i = 2, #KEYS do
  local key, what, rule, value, ago = KEYS[i], argument(), rules[number()], number(), number()
  local state, time = read(key), math.max(now - ago, 0)
  if what == 'refused' then
    local writes, banned = refused(state, rule, value, time)
    local live = writes and write(key, state, rule)
    if banned then
      changed(key, live)
    end
  elseif what == 'banned' then
    if offended(state, rule, value, time) then
      changed(key, write(key, state, rule))
    end
  else
    call('UNLINK', key)
    if state.till and state.till > now then
      lifted = lifted + 1
    end
    -- Told even where nothing is known of it here: a gateway may know of a ban that was lost here.
    changed(key, 0)
  end
end

-- The log is bounded: the oldest changes go first, and those of keys that say nothing any more. Changes of the last
-- minute stay, for everybody to see them.
if changes > 0 then
  call('ZREMRANGEBYRANK', log, 1, -100001)
  local oldest = call('ZRANGE', log, 1, 2 * changes, 'WITHSCORES')
  for i = 1, #oldest, 2 do
    if tonumber(oldest[i + 1]) < now - 60000000 and not call('MGET', oldest[i])[1] then
      call('ZREM', log, oldest[i])
    end
  end
  if call('PTTL', log) < live_most + 60000 then
    call('PEXPIRE', log, text(live_most + 60000))
  end
end

-- The reply: when the log was begun, its newest version, the one read up to, bans lifted, then of each change since: the key, and for how long
-- it is banned from now, its rung, and the length of the ban; empty texts where there is none.
local reply = {text(math.abs(begun)), text(version), text(version), text(lifted)}
if version > since then
  local list = call('ZRANGE', log, '(' .. text(since), '+inf', 'BYSCORE', 'LIMIT', 0, page, 'WITHSCORES')
  for i = 1, #list, 2 do
    local state = read(list[i])
    reply[#reply + 1] = list[i]
    if state.till then
      reply[#reply + 1] = text(state.till - now)
      reply[#reply + 1] = text(state.rung)
      reply[#reply + 1] = text(state.length)
    else
      for _ = 1, 3 do
        reply[#reply + 1] = ''
      end
    end
    reply[3] = text(list[i + 1])
  end
end
return reply
