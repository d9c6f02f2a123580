-- Whether the limits of our own connections hold, in milliseconds; 0: none.
select name, setting::bigint from pg_catalog.pg_settings
 where name = any (array['idle_in_transaction_session_timeout', 'lock_timeout', 'statement_timeout']::text[]) order by name
