
-- The driver: loads every key once, applies the settlements, decides the requests one after the other on whole numbers,
-- and only then writes, each changed key once. An error before the first write leaves nothing half done.

local not_after, at = read('<d', policies)
if not_after > 0 and now > not_after then
  return cmsgpack.pack({write('<d', now)})
end

states = call('MGET', unpack(KEYS))
-- Requests: of each the number of layers, then a key and a cost for each. Settlements, if there are any: of each the
-- key, the units, and when those were taken that are given back (0: they are taken now).
local requests, settlements = cmsgpack.unpack(ARGV[2])
local free, before = {unpack(KEYS)}, {unpack(KEYS)}
local loads = settlements and {}
-- Role of each key, where any is not 0: the driver asks for the others only then.
local roles
local saves, ends, key = {}, {}, 0
while at <= #policies do
  local id, keys, load
  id, keys, at = read('<BH', policies, at)
  if id >= 16 then
    local role = (id - id % 16) / 16
    id, roles = id % 16, roles or {}
    for i = key + 1, key + keys do roles[i] = role end
  end
  local policy = #saves + 1
  load, saves[policy], at = algorithms[id](at)
  if not load then return cmsgpack.pack({write('<d', now)}) end
  ends[policy] = key + keys
  if loads then loads[policy] = load end
  for i = key + 1, key + keys do
    local units = load(i)
    free[i], before[i] = units, units
  end
  key = key + keys
end

-- What is to be loaded then, of settled keys: in `states` stays what was there, until all is written.
local settled = settlements and {}
if settlements then
  for x = 1, #settlements, 3 do
    local i, policy = settlements[x], 1
    while ends[policy] < i do policy = policy + 1 end
    local was = states[i]
    if settled[i] ~= nil then states[i] = settled[i] end
    local units = loads[policy](i, settlements[x + 1], settlements[x + 2])
    free[i], before[i], rewrite[i] = units, units, true
    settled[i], states[i] = states[i], was
  end
end

-- Roles: 0 can refuse, and is charged where no layer does. 1 can refuse, and is charged as far as it was asked, with at
-- most what is free. 2 and 3 refuse nothing: 2 is charged where no layer refuses, 3 where none does but the one before
-- it, and both only where they have room.
local ALWAYS, CANDIDATE = 1, 3

-- Verdicts take the place of the requests that were read.
local verdicts, times, q = 0, {}, 1
local len = #requests
while q <= len do
  local first, last, denied_at, alone = q + 1, q + 2 * requests[q], 0, true
  for x = first, last, 2 do
    local i = requests[x]
    if free[i] < requests[x + 1] and not (roles and (roles[i] or 0) > ALWAYS) then
      if denied_at > 0 then
        alone = false
        break
      end
      denied_at = x
      if not roles then break end
    end
  end
  for x = first, last, 2 do
    local i, cost = requests[x], requests[x + 1]
    local role, lacks = roles and roles[i] or 0, free[i] < cost
    if denied_at == 0 and not lacks
      or role == CANDIDATE and denied_at == x - 2 and alone and not lacks
      or role == ALWAYS and denied_at >= x
    then
      free[i] = free[i] - math.min(cost, free[i])
    end
    if lacks and awaited[i] then times[#times + 1] = awaited[i](before[i] - free[i], cost) end
  end
  verdicts = verdicts + 1
  requests[verdicts] = denied_at > 0 and (denied_at - first) / 2 + 1 or 0
  q = last + 1
end

key = 1
for policy = 1, #saves do
  local save, ttl = saves[policy], ARGV[policy + 2]
  for i = key, ends[policy] do
    local used = before[i] - free[i]
    -- PTTL is below 0 where somebody took the expiry.
    if used > 0 or rewrite[i] == true or states[i] and call('PTTL', KEYS[i]) < (rewrite[i] or 0) then
      save(i, used, ttl)
    end
  end
  key = ends[policy] + 1
end

-- What was loaded, the time, a verdict a request: the caller replays the rest.
if settled then
  for i, state in pairs(settled) do states[i] = state end
end
states[#KEYS + 1] = write('<d', now) .. string.char(unpack(requests, 1, verdicts)) .. table.concat(times)
if replaced > 0 then states[#KEYS + 2] = write('<d', replaced) end
return cmsgpack.pack(states)
