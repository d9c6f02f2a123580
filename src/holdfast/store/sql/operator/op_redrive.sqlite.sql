-- Dead letters come back as pending messages: same id and dedupe key, a higher epoch, counters at 0, progress flags
-- kept and Failed cleared. `position` is the old one for the head of a halted stream, null: out of the order, or
-- given by op_redrive_place. It may be claimed after `delay`.
insert into holdfast_message (position, claimable_at, created_at, due_at, deadline, id, status, epoch, redrives, head,
                              queue, plain, type, stream, subject, dedupe, errors, headers, body, traceback)
select :position, :now + :delay, created_at, due_at, deadline, id, status & ~32768, min(epoch, 2147483646) + 1, min(redrives, 2147483646) + 1, :head,
       queue, null, type, stream, subject, dedupe, errors, headers, body, traceback
  from holdfast_dead where id = :id and queue = :queue and seq = :number
returning seq
