-- Fixed window. State: count, start, length (3 doubles).
-- `begin` and `length` are those of the present window, by the clock; else one begins with a request.
local function fixed_window(limit, begin, length, by_clock)
  local starts = {}

  local function load(i, units, taken)
    local state, count, start = states[i], 0, begin
    if state then
      local their_count, their_start, their_length = 0, 0, 0
      if #state == 24 then their_count, their_start, their_length = read('<ddd', state) end
      if their_count >= 1 and their_count < 2 ^ 53 and their_start == begin and their_length == length then
        count = their_count
      elseif not (their_count >= 1 and their_count < 2 ^ 53 and their_start >= 0 and their_start < 2 ^ 53
          and their_length >= 1 and their_length < 2 ^ 48) then
        states[i] = false
      -- Still runs (or has not begun, after the clock stepped back): the count goes into our window.
      elseif now < their_start + their_length then
        count = their_count
        if not by_clock and their_start <= now and now < their_start + length then start = their_start end
        if start ~= their_start or length ~= their_length then rewrite[i] = true end
      end
    end
    if units then
      if taken == 0 then
        count = math.min(count + units, 2 ^ 53 - 1)
      elseif start <= taken and taken < start + length then
        count = math.max(count - units, 0)
      end
      if count == 0 then start = begin end
      states[i] = count > 0 and write('<ddd', count, start, length)
    end
    held[i], starts[i] = count, start
    return math.max(limit - count, 0)
  end

  local function save(i, used, ttl)
    local count = held[i] + used
    if count == 0 then return call('UNLINK', KEYS[i]) end
    local state = write('<ddd', count, starts[i], length)
    if states[i] then call('PSETEX', KEYS[i], ttl, state) else create(i, ttl, state) end
  end

  return load, save
end

-- Parameters: limit, length, 1 if windows begin at multiples of the length or 0 if with a request.
algorithms[3] = function(at)
  local limit, length, by_clock
  limit, length, by_clock, at = read('<ddd', policies, at)
  by_clock = by_clock == 1
  local load, save = fixed_window(limit, by_clock and now - now % length or now, length, by_clock)
  return load, save, at
end

-- Windows of a calendar. Parameters: limit, begin of a window, its end, end of the next one.
-- Returns nothing where now is in neither: the caller had a wrong idea of our time.
algorithms[6] = function(at)
  local limit, begin, edge, last
  limit, begin, edge, last, at = read('<dddd', policies, at)
  if now < begin or now >= last then return end
  if now < edge then last = edge else begin = edge end
  local load, save = fixed_window(limit, begin, last - begin, true)
  return load, save, at
end
