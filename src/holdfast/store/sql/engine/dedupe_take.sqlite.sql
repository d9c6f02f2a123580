-- Take the dedupe keys of new messages (number, scope, key, id, kept); those taken before stay with the first. Answers the
-- keys just taken.
insert into holdfast_dedupe (scope, key, id, kept)
select json_extract(value, '$[1]'), json_extract(value, '$[2]'), json_extract(value, '$[3]'), json_extract(value, '$[4]')
  from json_each(:keys) where true
    on conflict do nothing
returning scope, key
