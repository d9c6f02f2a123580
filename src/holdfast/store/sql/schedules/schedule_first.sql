-- When the next schedule falls due that this process may fire, its name, and the time. None before (at, name) is searched.
-- `coalesce`: with it PostgreSQL estimates that half of the rows match, and finds the first by its index. Without it, it
-- estimates that hardly any row matches, and sorts the whole table.
select x.next_at, x.name, t.now from (select :now as now) t
  left join (select s.next_at, s.name from holdfast.schedule s
              where s.next_at is not null and (s.next_at, s.name) >= (:at::timestamptz, :name::text)
                and coalesce(s.origin = 'call' or s.name = any (:mine::text[]), false)
                and coalesce(s.zones is null or :zoned::boolean, false)
              order by s.next_at, s.name limit 1) x on true
