
-- Concurrency. State: of each gateway that holds slots its id, how many, since when it says so, and for how long that
-- holds (4 doubles each); what the caller holds comes last when it is written.
-- Parameters: limit, the length of a lease of the caller's, the caller's id.
algorithms[7] = function(at)
  local limit, length, caller
  limit, length, caller, at = read('<ddd', policies, at)

  -- What others hold, as it is stored, and when the last of it ends.
  local others, last = {}, {}

  local function is_lease(holder, slots, since, span)
    return holder >= 0 and holder < 2 ^ 53 and slots >= 1 and slots < 2 ^ 53 and since >= 0 and since < 2 ^ 53
      and span >= 1 and span < 2 ^ 48
  end

  local function with_own(i, own)
    if own == 0 then return others[i] end
    return others[i] .. write('<dddd', caller, own, now, length)
  end

  -- Settlements change what the caller holds: below 0, `taken` says that it is that many, whatever was said before.
  local function settle(own, units, taken)
    if taken < 0 then return units end
    if taken > 0 then return math.max(own - units, 0) end
    return math.min(own + units, 2 ^ 53 - 1)
  end

  local function load(i, units, taken)
    local state, own, theirs, rest, stepped = states[i], 0, 0, {}, false
    last[i] = 0
    for j = 1, state and #state or 0, 32 do
      local holder, slots, since, span = -1, 0, 0, 0
      if #state % 32 == 0 then holder, slots, since, span = read('<dddd', state, j) end
      if not is_lease(holder, slots, since, span) then
        states[i], own, theirs, rest, stepped, last[i] = false, 0, 0, {}, false, 0
        break
      end
      -- The clock stepped back.
      if since > now then since, stepped = now, true end
      if now < since + span and holder == caller then
        own = own + slots
      elseif now < since + span then
        theirs, last[i] = theirs + slots, math.max(last[i], since + span)
        rest[#rest + 1] = write('<dddd', holder, slots, since, span)
      end
    end
    if state == '' then states[i] = false end
    if stepped then rewrite[i] = true end
    others[i] = table.concat(rest)
    if units then
      own = settle(own, units, taken)
      states[i] = with_own(i, own)
      if states[i] == '' then states[i] = false end
    end
    held[i] = own
    return math.max(limit - theirs - own, 0)
  end

  local function save(i, used, ttl)
    local state = with_own(i, held[i] + used)
    if state == '' then return call('UNLINK', KEYS[i]) end
    -- The leases of others may be longer.
    ttl = math.max(ttl, math.ceil((last[i] - now) / 1000) + 2)
    if states[i] then call('PSETEX', KEYS[i], ttl, state) else create(i, ttl, state) end
  end

  return load, save, at
end
