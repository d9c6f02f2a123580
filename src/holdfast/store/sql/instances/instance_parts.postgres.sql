-- Parts of turns in progress: each under the lease of its run, at its place in the turn that the instance is at. The lease
-- is held until the commit: a worker that takes the run over reads its journal after that; renewals do not wait.
with given as materialized (
    select r.* from json_to_recordset(:rows::json)
        as r (seq bigint, epoch int, id text, execution int, turn int, part int, body text)
), held as materialized (
    select l.seq, l.epoch from holdfast.lease l
     where l.seq = any (array(select g.seq from given g)) order by l.seq for key share
)
insert into holdfast.journal (id, execution, turn, part, body)
select g.id, g.execution, g.turn, g.part, g.body
  from given g join held h on h.seq = g.seq and h.epoch = g.epoch
  join holdfast.instance i on i.id = g.id and i.execution = g.execution and i.turn = g.turn - 1
 where i.state in ('running', 'suspended')
   and (g.part = 0
        or exists (select 1 from holdfast.journal j
                    where j.id = g.id and j.execution = g.execution and j.turn = g.turn and j.part = g.part - 1))
    on conflict do nothing
returning id
