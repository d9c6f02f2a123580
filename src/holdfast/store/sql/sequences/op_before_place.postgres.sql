-- Messages that are held get the next places of their streams, in the order that they had.
update holdfast.message m set position = o.position
  from (select x.seq, nextval('holdfast.position') as position
          from (select n.seq from holdfast.message n
                 where n.seq = any (:seqs::bigint[]) and n.position is not null and not n.head
                 order by n.queue, n.stream, n.position) x) o
 where m.seq = o.seq returning m.seq
