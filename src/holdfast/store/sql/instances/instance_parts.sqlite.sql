-- Parts of turns in progress: each under the lease of its run, at its place in the turn that the instance is at.
insert into holdfast_journal (id, execution, turn, part, body)
select r.value ->> 'id', r.value ->> 'execution', r.value ->> 'turn', r.value ->> 'part', r.value ->> 'body'
  from json_each(:rows) r
 where exists (select 1 from holdfast_lease l where l.seq = r.value ->> 'seq' and l.epoch = r.value ->> 'epoch')
   and exists (select 1 from holdfast_instance i
                where i.id = r.value ->> 'id' and i.execution = r.value ->> 'execution'
                  and i.turn = (r.value ->> 'turn') - 1 and i.state in ('running', 'suspended'))
   and (r.value ->> 'part' = 0
        or exists (select 1 from holdfast_journal j
                    where j.id = r.value ->> 'id' and j.execution = r.value ->> 'execution'
                      and j.turn = r.value ->> 'turn' and j.part = (r.value ->> 'part') - 1))
    on conflict do nothing
returning id
