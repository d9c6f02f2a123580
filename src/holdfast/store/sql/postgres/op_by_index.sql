-- For this transaction: without knowing the moment, the planner would read the whole history to find what is old.
set local enable_seqscan = off
