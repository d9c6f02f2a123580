-- Schedules that are due, the oldest occurrence first, locked: another worker gets others. None before (at, name). At
-- most so many, and so many bytes of bodies; a single larger one is returned alone. The state of the last message is
-- looked up if it matters: 1 waits, 2 has been started. Unrouted, parked and dead ones do not count. The time is in a
-- subselect: for a volatile function the index would be read from one end to the other.
with due as materialized (
    select s.* from holdfast.schedule s
     where s.next_at <= (select coalesce(:now::timestamptz, clock_timestamp())) and (s.next_at, s.name) >= (:at::timestamptz, :name::text)
       and (s.origin = 'call' or s.name = any (:mine::text[])) and (s.zones is null or :zoned::boolean)
     order by s.next_at, s.name limit :limit::int for update skip locked)
select s.name, s.version, s.incarnation, s.zones, s.type, s.body, s.headers, s.stream, s.subject, s.queue, s.last_id::text, s.rule, s.misfire,
       s.overlap, s.cap, s.max_late, s.grace, s.next_key, s.last_key,
       case when s.overlap in ('skip', 'replace') then
       (select max(case when m.attempts > 0 or exists (select 1 from holdfast.lease l where l.seq = m.seq) then 2 else 1 end)
          from holdfast.message m where m.id = s.last_id and m.queue is not null and m.claimable_at < 'infinity') end,
       s.next_at, (select coalesce(:now::timestamptz, clock_timestamp()))
  from (select d.*, sum(octet_length(d.body)::bigint) over (order by d.next_at, d.name) - octet_length(d.body)::numeric as before
          from due d) s
 where s.before < :bytes::numeric order by s.next_at, s.name
