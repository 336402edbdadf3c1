
-- Leaky bucket, as a meter: what is used is its level.
algorithms[2] = bucket
