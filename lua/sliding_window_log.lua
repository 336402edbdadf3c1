
-- Sliding window log. A list of the times at which units were taken, oldest first, each packed as a double.
-- Parameters: limit, window.
-- In the reply: the units that count, and when the one at index max(0, live - limit) was taken (2 doubles).
--
-- Held of a key: `len` of the list, of which those from index `old` on and before `ahead` stay, but for the `gone`
-- that are given back; then come `push` units taken now. `runs` are the given back, by their time.
algorithms[5] = function(at)
  local limit, window
  limit, window, at = read('<dd', policies, at)

  -- When the unit at an index of the list was taken; 0 for what is no time.
  local function taken_at(key, index)
    local time = call('LINDEX', key, index)
    if time and #time == 8 then
      time = read('<d', time)
      if time >= 0 and time < 2 ^ 53 then return time end
    end
    return 0
  end

  -- The first index from `low` up to `high` whose time is above `bound`.
  local function first_above(key, low, high, bound)
    while low < high do
      local middle = math.floor((low + high) / 2)
      if taken_at(key, middle) > bound then high = middle else low = middle + 1 end
    end
    return low
  end

  -- When the unit at an index among those that count was taken.
  local function time_of(i, index)
    local log = held[i]
    if index >= log.ahead - log.old - (log.gone or 0) then return now end
    index = log.old + index
    for _, run in ipairs(log.runs or {}) do
      if index >= run.first then index = index + run.count end
    end
    return math.min(taken_at(KEYS[i], index), now)
  end

  -- Says what is free, and leaves in `states` and `awaited` what a refusal has to tell. `first`: the time of the
  -- oldest that counts, where it is known.
  local function tell(i, first)
    local log = held[i]
    local live = log.ahead - log.old - (log.gone or 0) + log.push
    local known = math.max(live - limit, 0)

    if live == 0 then
      first = 0
    elseif known > 0 or not first then
      first = time_of(i, known)
    end
    states[i] = write('<dd', live, math.min(first, now))
    -- `used` units more were taken in this call. What the reply has already, or was taken now, is not told.
    awaited[i] = function(used, cost)
      local index = live + used + cost - limit - 1
      if cost <= limit and index < live and index ~= known then
        return write('<d', time_of(i, index))
      end
    end
    return math.max(limit - live, 0)
  end

  -- Gives back at most so many of the units that were taken at a time before now.
  local function give_back(key, log, units, time)
    log.runs = log.runs or {}
    local run
    for _, other in ipairs(log.runs) do
      if other.time == time then run = other end
    end
    if not run then
      local first = first_above(key, log.old, log.ahead, time - 1)
      run = {time = time, first = first, len = first_above(key, first, log.ahead, time) - first, count = 0}
      table.insert(log.runs, run)
      table.sort(log.runs, function(a, b) return a.time < b.time end)
    end
    units = math.min(units, run.len - run.count)
    run.count, log.gone = run.count + units, (log.gone or 0) + units
  end

  local function settle(key, log, units, taken)
    if taken == 0 then
      local live = log.ahead - log.old - (log.gone or 0) + log.push
      log.push = log.push + math.min(units, math.max(2 * limit - live, 0))
    elseif taken == now then
      -- Among the units taken now are those that were ahead of now.
      local ahead = first_above(key, log.old, log.ahead, now - 1)
      log.push, log.ahead = log.push + log.ahead - ahead, ahead
      log.push = log.push - math.min(units, log.push)
    else
      give_back(key, log, units, taken)
    end
  end

  local function load(i, units, taken)
    local key = KEYS[i]
    if units then
      settle(key, held[i], units, taken)
      return tell(i)
    end
    local len = redis.pcall('LLEN', key)
    local log, first, last = {len = len, old = 0, ahead = len, push = 0}, 0, 0
    held[i] = log
    if len == 0 then return limit end
    if type(len) == 'number' then first, last = taken_at(key, 0), taken_at(key, -1) end
    if first == 0 or last == 0 then
      log.len, log.ahead, log.foreign, states[i] = 0, 0, true, false
      return limit
    end
    if first + window <= now then
      log.old, first = first_above(key, 1, len, now - window), nil
    end
    if last > now then
      log.ahead, rewrite[i] = first_above(key, log.old, len, now), true
      log.push = len - log.ahead
    elseif log.old < len then
      -- The window may have become longer: the key must not go before what it holds.
      rewrite[i] = (last + window - now) / 1000
    end
    return tell(i, first)
  end

  -- Drops what is old or given back, and what is ahead of now (the clock stepped back): that is written again as
  -- taken now.
  local function save(i, used, ttl)
    local key, log = KEYS[i], held[i]
    local push, times, time = used + log.push, {}, write('<d', now)
    if log.foreign then replaced = replaced + 1 end
    if log.ahead - log.old == (log.gone or 0) then
      if log.foreign or log.len > 0 then call('UNLINK', key) end
    else
      if log.old > 0 or log.ahead < log.len then call('LTRIM', key, log.old, log.ahead - 1) end
      for _, run in ipairs(log.runs or {}) do
        if run.count > 0 then call('LREM', key, -run.count, write('<d', run.time)) end
      end
    end
    for j = 1, math.min(push, 4000) do times[j] = time end
    while push > 0 do
      local chunk = math.min(push, 4000)
      call('RPUSH', key, unpack(times, 1, chunk))
      push = push - chunk
    end
    call('PEXPIRE', key, ttl)
  end

  return load, save, at
end
