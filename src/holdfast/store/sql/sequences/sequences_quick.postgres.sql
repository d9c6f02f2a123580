-- Sequences: the last number drawn, and the highest that is stored, by the newest rows only.
-- What is beyond 2^61 was written by other software (rules/numbers.py).
select u.name, u.sequence::oid::bigint, coalesce(pg_sequence_last_value(u.sequence), 0), u.stored
  from (values
        ('messages', pg_get_serial_sequence('holdfast.message', 'seq')::regclass,
         (select coalesce(greatest((select max(m.seq) from holdfast.message m where m.seq <= 2305843009213693952),
                                   (select max(s.seq) from holdfast.scheduled s where s.seq <= 2305843009213693952)), 0))),
        ('positions', 'holdfast.position'::regclass,
         (select coalesce(max(n.position), 0)
            from (select m.position from holdfast.message m order by m.seq desc limit 1000) n)),
        ('workers', pg_get_serial_sequence('holdfast.worker', 'id')::regclass,
         (select coalesce(max(w.id), 0) from holdfast.worker w)),
        ('orders', pg_get_serial_sequence('holdfast.audit', 'number')::regclass,
         (select coalesce(max(a.number), 0) from holdfast.audit a)),
        ('news', pg_get_serial_sequence('holdfast.alert_news', 'number')::regclass,
         (select coalesce(max(a.number), 0) from holdfast.alert_news a))) u (name, sequence, stored)
