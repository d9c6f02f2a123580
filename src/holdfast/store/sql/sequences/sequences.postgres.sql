-- Sequences: the last number drawn, and the highest that is stored anywhere. It reads all that is pending or dead.
-- What is beyond 2^61 was written by other software, and must not hide that a sequence is behind (rules/numbers.py).
select u.name, u.sequence::oid::bigint, coalesce(pg_sequence_last_value(u.sequence), 0), u.stored
  from (values
        ('messages', pg_get_serial_sequence('holdfast.message', 'seq')::regclass,
         (select coalesce(greatest((select max(m.seq) from holdfast.message m where m.seq <= 2305843009213693952),
                                   (select max(s.seq) from holdfast.scheduled s where s.seq <= 2305843009213693952),
                                   (select max(d.seq) from holdfast.dead d where d.seq <= 2305843009213693952),
                                   (select max(l.seq) from holdfast.lease l)), 0))),
        ('positions', 'holdfast.position'::regclass,
         (select coalesce(greatest((select max(m.position) from holdfast.message m where m.position <= 2305843009213693952),
                                   (select max(s.last) from holdfast.stream s),
                                   (select max(d.position) from holdfast.dead d where d.position <= 2305843009213693952),
                                   (select max(l.run_end) from holdfast.lease l)), 0))),
        ('workers', pg_get_serial_sequence('holdfast.worker', 'id')::regclass,
         (select coalesce(greatest((select max(w.id) from holdfast.worker w), (select max(l.worker) from holdfast.lease l)), 0))),
        ('orders', pg_get_serial_sequence('holdfast.audit', 'number')::regclass,
         (select coalesce(max(a.number), 0) from holdfast.audit a)),
        ('news', pg_get_serial_sequence('holdfast.alert_news', 'number')::regclass,
         (select coalesce(greatest((select max(a.number) from holdfast.alert_news a), (select max(a.episode) from holdfast.alert a)), 0))))
       u (name, sequence, stored)
