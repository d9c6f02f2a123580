-- A message that came back takes the last place in the order of its stream.
update holdfast_message set position = seq, head = :head where seq = :seq
