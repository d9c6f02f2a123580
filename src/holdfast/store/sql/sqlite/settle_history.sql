-- One line of history for each message [seq, milliseconds it ran, flags] that is done.
insert into holdfast_history (ended_at, started_at, due_at, id, status, attempts, failures, outcome, queue, type, stream,
                              subject)
select :now, :now - 1000 * json_extract(j.value, '$[1]'), coalesce(m.due_at, m.created_at), m.id, m.status | 4 | json_extract(j.value, '$[2]'),
       m.attempts + 1, m.failures, 'done', m.queue, m.type, m.stream, m.subject
  from json_each(:done) j join holdfast_message m on m.seq = json_extract(j.value, '$[0]')
