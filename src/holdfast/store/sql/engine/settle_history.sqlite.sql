-- One row of the history for each message that is done, {seq: milliseconds it ran, and behind them the bits of its flags}.
insert into holdfast_history (ended_at, started_at, due_at, id, status, attempts, failures, outcome, queue, type, stream,
                              subject, origin)
select :now, :now - 1000 * (j.value >> :bits), coalesce(m.due_at, m.created_at), m.id,
       m.status | 4 | (j.value & ((1 << :bits) - 1)), m.attempts + 1, m.failures, 'done', m.queue, m.type, m.stream, m.subject,
       case when unicode(m.dedupe) = 31 then m.dedupe end
  from json_each(:done) j join holdfast_message m on m.seq = cast(j.key as integer)
