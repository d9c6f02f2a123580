-- Make a sleeping worker check what is due. Sent when the transaction commits.
select pg_notify('holdfast', 'due') from (select 1 from holdfast.worker w where w.asleep limit 1) w
