-- Of these calls, those whose messages are still there and whose workers were not asked to stop because they are locked.
select m.id from holdfast.message m
 where m.id = any (:ids::uuid[]) and m.stream is null
   and not exists (select 1 from holdfast.lease l where l.seq = m.seq and l.cancel)
