-- When the next schedule falls due that this process may fire, and the time.
select (select s.next_at from holdfast.schedule s
         where s.next_at is not null and (s.origin = 'call' or s.name = any (:mine::text[]))
           and (s.zones is null or :zoned::boolean)
         order by s.next_at limit 1), :now
