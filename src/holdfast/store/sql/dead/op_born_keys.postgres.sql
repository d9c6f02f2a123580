-- Take the dedupe keys of messages that are dead letters from the start, sorted. Answers the ids of those that were free.
insert into holdfast.dedupe (scope, key, id, kept)
select distinct on (1, 2) holdfast.dedupe_scope(x.type, x.dedupe), x.dedupe, x.id, x.kept
  from json_to_recordset(:letters::json) as x (id uuid, type text, dedupe text, kept int) order by 1, 2, 3
    on conflict do nothing
returning id
