
-- What was used under another rate is drained at that up to now; then its fractions become ours, rounded up: against
-- the client, so that nothing is minted. Nil if it is no rate.
local function adopt(used, since, their_units, their_period, period)
  if not (their_units >= 1 and their_units < 2 ^ 53 and their_period >= 1 and their_period < 2 ^ 48) then return end
  if since < now then used = math.max(used - (now - since) * their_units, 0) end
  if their_period == period then return used end
  local rest = used % their_period
  local more = period % their_period
  local whole = (used - rest) / their_period * period + rest * ((period - more) / their_period)
  if whole >= 2 ^ 53 then return 2 ^ 53 - 1 end
  local part, left = mul_div(rest, more, their_period)
  whole = whole + part
  if left > 0 then whole = whole + 1 end
  return math.min(whole, 2 ^ 53 - 1)
end

-- What has drained of a bucket that warms up in `time`, after `warmed` of it, in fifteenths of what does in a
-- microsecond once it is warm. warmed <= time.
local function since_cold(warmed, time)
  local step = time / 10
  local steps = math.min((warmed - warmed % step) / step, 10)
  return (5 + steps) * warmed - step * (steps * (steps + 1) / 2)
end

-- A state of warm_up.lua, settled to now: used, period, for how long it has warmed and was not charged; then its part,
-- its time, and when it was written. Nil if it is none.
local function thaw(state)
  local used, since, part, period, warmed, idle, time = read('<ddddddd', state)
  if used >= 0 and used < 2 ^ 53 and since >= 0 and since < 2 ^ 53 and part >= 1 and part < 2 ^ 53
    and period >= 1 and period < 2 ^ 48 and time >= 10 and time < 2 ^ 48 and time % 10 == 0
    and warmed >= 0 and warmed <= time and idle >= 0 and idle <= time
  then
    local passed = math.max(now - since, 0)
    local warm = math.max(warmed + passed - time, 0)
    local drained = since_cold(warmed + passed - warm, time) - since_cold(warmed, time) + 15 * warm
    used = math.max(used - part * drained, 0)
    return used, period, math.min(warmed + passed, time), math.min(idle + passed, time), part, time, since
  end
end

-- Both buckets: a meter of what is used, in fractions of a unit: `period` of them are one unit, `units` of them drain
-- in a microsecond. State: used, at, units, period (4 doubles).
-- Parameters: units, period (the rate in lowest terms), room (in fractions).
local function bucket(at)
  local units, period, room
  units, period, room, at = read('<ddd', policies, at)

  local function load(i, count, taken)
    local state, used = states[i], 0
    if state then
      local since, their_units, their_period = 0, 0, 0
      if #state == 32 then
        used, since, their_units, their_period = read('<dddd', state)
      elseif #state == 56 then
        used, their_period = thaw(state)
        used, since, their_units = used or -1, now, 1
        if used > 0 then rewrite[i] = true end
      end
      if not (used >= 0 and used < 2 ^ 53 and since >= 0 and since < 2 ^ 53) then
        used = nil
      elseif their_units ~= units or their_period ~= period then
        used = adopt(used, since, their_units, their_period, period)
        if used and used > 0 then rewrite[i] = true end
      elseif since <= now then
        used = used - (now - since) * units
        if used < 0 then used = 0 end
      elseif used > 0 then
        -- The clock stepped back.
        rewrite[i] = true
      end
      if not used then states[i], used = false, 0 end
    end
    if count then
      -- Who leaves a queue gets nothing back once there is somebody behind: then the bucket is empty later than told.
      local rest = used % units
      local empty_at = math.min(now + (used - rest) / units + (rest > 0 and 1 or 0), 2 ^ 53 - 1)
      if taken < 0 and empty_at ~= -taken then count = 0 end
      used = math.min(math.max(used + (taken == 0 and count or -count) * period, 0), 2 ^ 53 - 1)
      states[i] = write('<dddd', used, now, units, period)
    end
    held[i] = used
    local free = room - used
    if free < period then return 0 end
    return (free - free % period) / period
  end

  local function save(i, used, ttl)
    used = held[i] + used * period
    if used == 0 then return call('UNLINK', KEYS[i]) end
    -- More than the room, after a reload or a debit: the time to live of a full bucket is too short.
    if used > room then ttl = math.max(ttl, math.ceil(used / units / 1000) + 2) end
    local state = write('<dddd', used, now, units, period)
    if states[i] then call('PSETEX', KEYS[i], ttl, state) else create(i, ttl, state) end
  end

  return load, save, at
end
