
-- Fixed window. State: count, start, length (3 doubles).
-- Parameters: limit, length, 1 if windows begin at multiples of the length or 0 if with a request.
algorithms[3] = function(at)
  local limit, length, by_clock
  limit, length, by_clock, at = read('<ddd', policies, at)
  by_clock = by_clock == 1
  local begin = by_clock and now - now % length or now
  local starts = {}

  local function load(i)
    local state, count, start = stored(i, 24), 0, begin
    if state then
      local their_count, their_start, their_length = read('<ddd', state)
      if their_count % 1 ~= 0 or their_count < 1 or their_count > EXACT or not whole(their_start, 0, EXACT)
          or their_length ~= length and not whole(their_length, 1, SPAN) then
        states[i] = false
      -- Still runs (or has not begun, after the clock stepped back): the count goes into our window.
      elseif now < their_start + their_length then
        count = their_count
        if not by_clock and their_start <= now and now < their_start + length then start = their_start end
        if start ~= their_start or length ~= their_length then rewrite[i] = true end
      end
    end
    held[i], starts[i] = count, start
    return math.max(limit - count, 0)
  end

  local function save(i, used, ttl)
    used = held[i] + used
    if used == 0 then
      call('UNLINK', KEYS[i])
      return
    end
    put(i, ttl, write('<ddd', used, starts[i], length))
  end

  if settlements then
    settles[#settles + 1] = function(i, units, taken)
      local count, start = held[i], starts[i]
      if taken == 0 then
        count = math.min(count + units, EXACT)
      elseif start <= taken and taken < start + length then
        count = count - units
      end
      -- With a count below 1 it is no state, and no window has begun.
      states[i] = write('<ddd', count, start, length)
      return load(i)
    end
  end

  return load, save, at
end
