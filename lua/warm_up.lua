
-- Token bucket that warms up: refills at 5 to 15 fifteenths of its rate, a step of one more in each tenth of the time
-- that it takes. State: used, at, part (what drains in a microsecond at a fifteenth of the rate), period, for how long
-- it has warmed and for how long nobody was charged (both at most time), time (7 doubles).
-- Parameters: part, period, capacity and what is used of a cold bucket (in fractions), time.
algorithms[8] = function(at)
  local part, period, capacity, cold, time
  part, period, capacity, cold, time, at = read('<ddddd', policies, at)

  -- Settled to now, under our parameters; and whether it was written under others, or later than now.
  local function settle(state)
    if #state == 56 then
      local used, their_period, warmed, idle, their_part, their_time, since = thaw(state)
      used = used and adopt(used, now, 1, their_period, period)
      if not used then return end
      if their_time ~= time then
        -- The step that it had reached.
        local step = their_time / 10
        warmed = (warmed - warmed % step) / step * (time / 10)
      end
      return used, warmed, idle, their_part ~= part or their_period ~= period or their_time ~= time or since > now
    elseif #state == 32 then
      -- Of a bucket that did not warm up: it is warm.
      local used, since, their_units, their_period = read('<dddd', state)
      if not (used >= 0 and used < 2 ^ 53 and since >= 0 and since < 2 ^ 53) then return end
      return adopt(used, since, their_units, their_period, period), time, math.max(now - since, 0), true
    end
  end

  local function load(i, count, taken)
    local state, used, warmed, idle, is_changed = states[i], nil, 0, time, false
    if state then
      used, warmed, idle, is_changed = settle(state)
      if not used then states[i] = false end
    end
    if not used then used, warmed, idle, is_changed = cold, 0, time, false end
    idle = math.min(idle, time)
    if idle == time and used <= cold then
      -- As one that nobody has ever charged.
      used, warmed = cold, 0
    elseif is_changed then
      rewrite[i] = true
    end
    if count and taken == 0 then
      if count > 0 then idle = 0 end
      used = math.min(used + count * period, 2 ^ 53 - 1)
    elseif count and taken > 0 then
      used = math.max(used - count * period, 0)
      if idle == time and used <= cold then used, warmed = cold, 0 end
    end
    if count then states[i] = write('<ddddddd', used, now, part, period, warmed, idle, time) end
    held[i] = {used, warmed, idle}
    local free = capacity - used
    if free < period then return 0 end
    return (free - free % period) / period
  end

  local function save(i, units, ttl)
    local used, warmed, idle = unpack(held[i])
    if units > 0 then used, idle = used + units * period, 0 end
    if idle == time and used <= cold then return call('UNLINK', KEYS[i]) end
    if used > capacity then ttl = math.max(ttl, math.ceil(used / part / 5000) + 2) end
    local state = write('<ddddddd', used, now, part, period, warmed, idle, time)
    if states[i] then call('PSETEX', KEYS[i], ttl, state) else create(i, ttl, state) end
  end

  return load, save, at
end
