-- A process that stands still here must not keep schedules locked: after 2 s the server ends its transaction.
select set_config('idle_in_transaction_session_timeout', '2000', true)
