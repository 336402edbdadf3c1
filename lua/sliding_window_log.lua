
-- Sliding window log. A list of the times at which units were taken, oldest first, each packed as a double.
-- Parameters: limit, window.
-- In the reply: the units that count, and when the one at index max(0, live - limit) was taken (2 doubles).
algorithms[5] = function(at)
  local limit, window
  limit, window, at = read('<dd', policies, at)

  local function taken_at(key, index)
    local time = call('LINDEX', key, index)
    return #time == 8 and read('<d', time) or 0
  end

  -- The first index from `low` up to `high` whose time is above `bound`.
  local function first_above(key, low, high, bound)
    while low < high do
      local middle = math.floor((low + high) / 2)
      if taken_at(key, middle) > bound then high = middle else low = middle + 1 end
    end
    return low
  end

  local function load(i)
    local key = KEYS[i]
    local len = redis.pcall('LLEN', key)
    local log = {len = len, old = 0, ahead = len}
    held[i] = log
    if type(len) ~= 'number' then
      log.len, log.ahead, log.foreign, states[i] = 0, 0, true, false
      return limit
    elseif len == 0 then
      return limit
    end
    local time = taken_at(key, 0)
    if time + window <= now then
      log.old, time = first_above(key, 1, len, now - window), nil
    end
    local live, newest = len - log.old, taken_at(key, -1)
    if newest > now then
      log.ahead, rewrite[i] = first_above(key, log.old, len, now), true
    elseif live > 0 and call('PTTL', key) < (newest + window - now) / 1000 then
      -- The window has become longer: the key must not go before what it holds. (Or somebody took its expiry.)
      rewrite[i] = true
    end
    local known = math.max(live - limit, 0)
    if live == 0 then
      time = 0
    elseif known > 0 or not time then
      time = taken_at(key, log.old + known)
    end
    states[i] = write('<dd', live, math.min(time, now))
    -- `used` units more were taken in this call. What the reply has already, or was taken now, is not told.
    awaited[i] = function(used, cost)
      local index = live + used + cost - limit - 1
      if cost <= limit and index < live and index ~= known then
        return write('<d', math.min(taken_at(key, log.old + index), now))
      end
    end
    return math.max(limit - live, 0)
  end

  -- Drops what is old, and what is ahead of now (the clock stepped back): that is written again as taken now.
  local function save(i, used, ttl)
    local key, log = KEYS[i], held[i]
    if log.foreign or (log.len > 0 and log.ahead == log.old) then
      call('UNLINK', key)
    elseif log.old > 0 or log.ahead < log.len then
      call('LTRIM', key, log.old, log.ahead - 1)
    end
    local push = used + log.len - log.ahead
    local times, time = {}, write('<d', now)
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
