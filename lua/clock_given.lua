
-- For tests: the time is the last argument, in µs.
local now = tonumber(ARGV[#ARGV])
