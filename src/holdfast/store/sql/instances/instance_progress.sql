-- The reported progress of calls that run now.
select m.id, l.progress from holdfast.message m join holdfast.lease l on l.seq = m.seq
 where m.id = any (:ids::uuid[]) and l.progress is not null
