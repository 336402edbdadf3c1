
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
      if since <= now then
        used = used - (now - since) * their_units
        if used < 0 then used = 0 end
      end
      if used > 0 and (since > now or their_units ~= units or their_period ~= period) then
        rewrite[i] = true
        if their_period ~= period then used = convert(used, their_period) end
      end
    end
    held[i] = used
    local free = capacity - used
    if free < period then return 0 end
    return (free - free % period) / period
  end

  local function save(i, used, ttl)
    used = held[i] + used * period
    -- More than the capacity, after a reload: the time to live of a full bucket is too short.
    if used > capacity then ttl = math.max(ttl, math.ceil(used / units / 1000) + 2) end
    call('PSETEX', KEYS[i], ttl, write('<dddd', used, now, units, period))
  end

  return load, save, at
end
