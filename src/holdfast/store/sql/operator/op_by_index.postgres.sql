-- For this transaction: without knowing the moment, the planner would scan the whole history for old rows.
select set_config('enable_seqscan', 'off', true)
