-- For this transaction: without knowing the moment, the planner would read the whole history to find what is old.
select set_config('enable_seqscan', 'off', true)
