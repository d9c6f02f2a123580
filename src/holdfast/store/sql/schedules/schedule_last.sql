-- The messages of an occurrence that are pending: their numbers.
select m.seq from holdfast.message m where m.id = :id::uuid and m.queue is not null order by m.seq
