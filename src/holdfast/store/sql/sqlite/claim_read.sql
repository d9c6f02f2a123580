-- The messages [seq, seq of its head] that are handed out.
select m.seq, m.id, m.queue, m.type, m.body, m.stream, m.position, m.subject, m.headers, m.status, m.attempts, m.failures,
       m.vanished, m.refunds, m.created_at, m.due_at, m.deadline, m.epoch + 1, json_extract(j.value, '$[1]'),
       m.claimable_at
  from json_each(:chosen) j join holdfast_message m on m.seq = json_extract(j.value, '$[0]')
 order by j.key
