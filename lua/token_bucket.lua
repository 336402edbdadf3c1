
-- Token bucket: what is used is what is missing from full.
algorithms[1] = bucket
