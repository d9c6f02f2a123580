-- The dead letters that were found, by cause, most deaths first. The newest of each is the sample.
select g.fingerprint, g.queue, g.type, g.reason, g.count, g.first_at, g.last_at, g.held, g.id,
       case when json_valid(g.errors) then json_extract(g.errors, '$[#-1].text') end
  from (select f.fingerprint, f.queue, f.type, coalesce(f.last_reason, f.reason) as reason, f.id, f.errors,
               count(*) over w as count, min(f.died_at) over w as first_at, max(f.died_at) over w as last_at,
               count(f.held_at) over w as held,
               row_number() over (partition by f.fingerprint, f.queue, f.type, coalesce(f.last_reason, f.reason)
                                  order by f.died_at desc, f.id) as n
          from found f
        window w as (partition by f.fingerprint, f.queue, f.type, coalesce(f.last_reason, f.reason))) g
 where g.n = 1 order by g.count desc, g.last_at desc, g.fingerprint
