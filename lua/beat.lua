#!lua flags=allow-oom
-- A gateway says that it lives. KEYS[1]: when each did so last, in ms, as a sorted set. ARGV[1]: its name.
-- Answers how many live, as text. One that was not heard of for 3 s is dead; a time ahead of now is from before the
-- clock stepped back, and comes again within a second.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local key = KEYS[1]
if type(redis.pcall('ZADD', key, now, ARGV[1])) ~= 'number' then
  -- Something else stands there.
  redis.call('UNLINK', key)
  redis.call('ZADD', key, now, ARGV[1])
end
redis.call('ZREMRANGEBYSCORE', key, '-inf', now - 3000)
redis.call('ZREMRANGEBYSCORE', key, now + 1, '+inf')
redis.call('PEXPIRE', key, 10000)
return tostring(redis.call('ZCARD', key))
