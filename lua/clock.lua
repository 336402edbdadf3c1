
-- One time for the whole call, in µs, so that gateways need not agree on a clock. TIME does not stand still in a
-- script.
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
