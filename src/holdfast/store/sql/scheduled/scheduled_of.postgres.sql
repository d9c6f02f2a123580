-- The deliveries of these messages that are scheduled, locked.
select seq from holdfast.scheduled where id = any (:ids::uuid[]) order by seq for update
