-- A process that stops here must not keep schedules locked: after 2 s the server ends its transaction. Rows are
-- found by index, whatever the planner estimates for the table: it may have grown since it was analyzed.
select set_config('idle_in_transaction_session_timeout', '2000', true), set_config('enable_seqscan', 'off', true),
       set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)
