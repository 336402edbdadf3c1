
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

-- Sliding window counter. State: newest sub-window, window, buckets, and buckets + 1 counts, newest first (doubles).
-- Parameters: limit, window, buckets.
algorithms[4] = function(at)
  local limit, window, buckets
  limit, window, buckets, at = read('<ddd', policies, at)
  local head = sub_window(now, window, buckets)
  local position = now % window * buckets % window
  local newest, oldest = 4, buckets + 4
  local format = '<' .. string.rep('d', oldest)

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
    move(theirs, sub_window(now, their_window, their_buckets), last)
    for j = newest, last do
      local count = theirs[j]
      if count > 0 then
        local instant = math.min(now, begin_of(theirs[1] + newest + 1 - j, their_window, their_buckets) - 1)
        local k = newest + head - sub_window(instant, window, buckets)
        if k <= oldest then
          v[k], rewrite[i] = v[k] + count, true
        end
      elseif count ~= 0 then
        return
      end
    end
    return v
  end

  local function load(i, units, taken)
    local state, v = states[i], nil
    if state then
      local their_head, their_window, their_buckets = 0, 0, 0
      if #state >= 40 then their_head, their_window, their_buckets = read('<ddd', state) end
      if not (their_head >= 0 and their_head < 2 ^ 53) then
        v = nil
      elseif their_window == window and their_buckets == buckets and #state == 8 * oldest then
        v = {read(format, state)}
        if their_head ~= head then
          if their_head > head then rewrite[i] = true end
          move(v, head, oldest)
        end
      elseif their_window >= 1 and their_window < 2 ^ 48 and their_buckets >= 1 and their_buckets <= 60
          and their_buckets % 1 == 0 and their_window * their_buckets < 2 ^ 53 and #state == 8 * their_buckets + 32 then
        v = convert(i, state, their_window, their_buckets)
      end
    end
    if not v then states[i], rewrite[i], v = false, nil, nothing() end

    local newer, least = 0, v[oldest]
    for j = newest, oldest - 1 do
      local count = v[j]
      newer = newer + count
      if count < least then least = count end
    end
    local sum = newer + v[oldest]
    if not (least >= 0 and sum < 2 ^ 53) then
      states[i], rewrite[i], v, newer, sum = false, nil, nothing(), 0, 0
    end

    if units then
      local j, change = newest, 0
      if taken == 0 then
        -- At most so many that the sum is exact, whatever is taken after it.
        change = math.min(units, math.max(2 ^ 52 - sum, 0))
      else
        j = newest + head - sub_window(taken, window, buckets)
        if j >= newest and j <= oldest then change = -math.min(units, v[j]) end
      end
      if change ~= 0 then v[j] = v[j] + change end
      states[i] = sum + change > 0 and write(format, unpack(v))
      return load(i)
    end
    held[i] = v
    return math.max(limit - newer - mul_div(v[oldest], window - position, window), 0)
  end

  local function save(i, used, ttl)
    local v = held[i]
    v[newest] = v[newest] + used
    if used == 0 and math.max(unpack(v, newest, oldest)) == 0 then return call('UNLINK', KEYS[i]) end
    local state = write(format, unpack(v))
    if states[i] then call('PSETEX', KEYS[i], ttl, state) else create(i, ttl, state) end
  end

  return load, save, at
end
