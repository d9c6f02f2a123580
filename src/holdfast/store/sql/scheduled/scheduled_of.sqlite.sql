-- The deliveries of these messages that are scheduled.
select seq from holdfast_scheduled where id in (select value from json_each(:ids))
