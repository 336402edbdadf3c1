
-- Both buckets: a meter of what is used, in fractions of a unit: `period` of them are one unit, `units` of them drain
-- in a microsecond. State: used, at, units, period (4 doubles).
-- Parameters: units, period (the rate in lowest terms), capacity (in fractions).
local function bucket(at)
  local units, period, capacity
  units, period, capacity, at = read('<ddd', policies, at)

  -- Fractions of another period as fractions of ours, rounded up: against the client, so that nothing is minted.
  local function convert(used, theirs)
    local rest = used % theirs
    local more = period % theirs
    local whole = (used - rest) / theirs * period + rest * ((period - more) / theirs)
    if whole > EXACT then return EXACT end
    local part, left = mul_div(rest, more, theirs)
    whole = whole + part
    if left > 0 then whole = whole + 1 end
    return math.min(whole, EXACT)
  end

  local function load(i)
    local state, used = stored(i, 32), 0
    if state then
      local since, their_units, their_period
      used, since, their_units, their_period = read('<dddd', state)
      local is_ours = their_units == units and their_period == period
      if used % 1 == 0 and used >= 0 and used <= EXACT and since % 1 == 0 and since >= 0 and since <= EXACT
          and (is_ours or whole(their_units, 1, EXACT) and whole(their_period, 1, SPAN)) then
        if since <= now then
          used = used - (now - since) * their_units
          if used < 0 then used = 0 end
        end
        if used > 0 and (since > now or not is_ours) then
          rewrite[i] = true
          if their_period ~= period then used = convert(used, their_period) end
        end
      else
        states[i], used = false, 0
      end
    end
    held[i] = used
    local free = capacity - used
    if free < period then return 0 end
    return (free - free % period) / period
  end

  local function save(i, used, ttl)
    used = held[i] + used * period
    if used == 0 then
      call('UNLINK', KEYS[i])
      return
    end
    -- More than the capacity, after a reload or a debit: the time to live of a full bucket is too short.
    if used > capacity then ttl = math.max(ttl, math.ceil(used / units / 1000) + 2) end
    put(i, ttl, write('<dddd', used, now, units, period))
  end

  if settlements then
    settles[#settles + 1] = function(i, count, taken)
      if taken > 0 then count = -count end
      local used = math.min(held[i] + count * period, EXACT)
      -- Below 0 it is no state, and reads as full.
      states[i] = write('<dddd', used, now, units, period)
      return load(i)
    end
  end

  return load, save, at
end
