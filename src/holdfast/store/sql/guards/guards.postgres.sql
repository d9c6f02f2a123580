-- The limits of a connection, set for one transaction: behind a pooler sessions are shared.
select set_config('idle_in_transaction_session_timeout', :idle::text, true), set_config('lock_timeout', :lock::text, true),
       set_config('statement_timeout', :statement::text, true), set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('jit', 'off', true), set_config('timezone', 'UTC', true)
