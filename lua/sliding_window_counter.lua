
-- The sub-window that a time lies in, and the first microsecond of a sub-window.
local function sub_window(time, window, buckets)
  local within = time % window
  local part = within * buckets
  return (time - within) / window * buckets + (part - part % window) / window
end

local function begin_of(index, window, buckets)
  local part = index % buckets
  return (index - part) / buckets * window + math.ceil(part * window / buckets)
end

-- A debit makes the sum of all sub-windows at most this, which leaves room for what is taken after it.
local DEBIT_SUM = 2 ^ 52

-- Sliding window counter. State: newest sub-window, window, buckets, and buckets + 1 counts, newest first (doubles).
-- Parameters: limit, window, buckets.
algorithms[4] = function(at)
  local limit, window, buckets
  limit, window, buckets, at = read('<ddd', policies, at)
  local head = sub_window(now, window, buckets)
  local position = now % window * buckets % window
  local newest, oldest = 4, buckets + 4
  local format = '<' .. string.rep('d', oldest)

  -- The sum of all counts; nil if they are none, or too many to be exact.
  local function total(v, last)
    local sum, part, least = 0, 0, 0
    for j = newest, last do
      local count = v[j]
      sum, part = sum + count, part + count % 1
      if count < least then least = count end
    end
    return part == 0 and least == 0 and sum <= EXACT and sum or nil
  end

  local function nothing()
    local v = {head, window, buckets}
    for j = newest, oldest do v[j] = 0 end
    return v
  end

  -- Moves counts to sub-window `to`. If they are ahead of it (the clock stepped back), the newest becomes `to`.
  local function move(v, to, last)
    local by = to - v[1]
    if by > 0 then
      for j = last, newest, -1 do v[j] = j - by >= newest and v[j - by] or 0 end
    end
    v[1] = to
  end

  -- Counts of other sub-windows: each goes, in full, to the one of ours that holds its last instant, or now. Nil if
  -- they are none.
  local function convert(i, state, their_window, their_buckets)
    local v, last = nothing(), their_buckets + 4
    local theirs = {read('<' .. string.rep('d', last), state)}
    if not total(theirs, last) then return end
    move(theirs, sub_window(now, their_window, their_buckets), last)
    for j = newest, last do
      local count = theirs[j]
      if count > 0 then
        local instant = math.min(now, begin_of(theirs[1] + newest + 1 - j, their_window, their_buckets) - 1)
        local k = newest + head - sub_window(instant, window, buckets)
        if k <= oldest then
          v[k], rewrite[i] = v[k] + count, true
        end
      end
    end
    return v
  end

  local function load(i)
    local state, v = states[i], nil
    if state then
      local their_head, their_window, their_buckets = 0, 0, 0
      if #state >= 40 then their_head, their_window, their_buckets = read('<ddd', state) end
      if whole(their_head, 0, EXACT) then
        if their_window == window and their_buckets == buckets and #state == 8 * oldest then
          v = {read(format, state)}
          if total(v, oldest) then
            if their_head > head then rewrite[i] = true end
            move(v, head, oldest)
          else
            v = nil
          end
        elseif whole(their_window, 1, SPAN) and whole(their_buckets, 1, 60) and their_window * their_buckets <= EXACT
            and #state == 8 * their_buckets + 32 then
          v = convert(i, state, their_window, their_buckets)
        end
      end
      states[i] = v and state or false
    end
    v = v or nothing()
    held[i] = v
    local used = mul_div(v[oldest], window - position, window)
    for j = newest, oldest - 1 do used = used + v[j] end
    return math.max(limit - used, 0)
  end

  local function save(i, used, ttl)
    local v = held[i]
    v[newest] = v[newest] + used
    if used == 0 and total(v, oldest) == 0 then
      call('UNLINK', KEYS[i])
      return
    end
    put(i, ttl, write(format, unpack(v)))
  end

  if settlements then
    settles[#settles + 1] = function(i, units, taken)
      local v = held[i]
      if taken == 0 then
        v[newest] = v[newest] + math.min(units, math.max(DEBIT_SUM - total(v, oldest), 0))
      else
        local j = newest + head - sub_window(taken, window, buckets)
        if j >= newest and j <= oldest then v[j] = math.max(v[j] - units, 0) end
      end
      states[i] = total(v, oldest) > 0 and write(format, unpack(v))
      return load(i)
    end
  end

  return load, save, at
end
