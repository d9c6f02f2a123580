-- The next streams by queue and name: how many are in the order, the lowest place in it, that of the head, the last.
select s.queue, s.name, s.open, s.halted_by is not null, s.last, x.found, x.lowest, x.head, x.highest
  from (select * from holdfast.stream where (queue, name) > (:queue::text, :name::text) order by queue, name limit :limit::int) s
 cross join lateral (
       select count(*) as found, min(m.position) as lowest, min(m.position) filter (where m.head) as head,
              max(m.position) as highest
         from holdfast.message m where m.queue = s.queue and m.stream = s.name and m.position is not null) x
 order by s.queue, s.name
