-- How many schedules there are, counted up to a limit; paused, failed, and due ones.
select (select count(*) from (select 1 from holdfast.schedule limit :limit::int) x),
       (select count(*) from holdfast.schedule s where (s.paused_at is not null or s.error is not null) and s.paused_at is not null),
       (select count(*) from holdfast.schedule s where (s.paused_at is not null or s.error is not null) and s.error is not null),
       (select count(*) from (select 1 from holdfast.schedule s where s.next_at <= (select :now) limit :limit::int) x),
       (select min(s.next_at) from holdfast.schedule s where s.next_at is not null)
