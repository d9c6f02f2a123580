-- Give the waiting messages their places.
update holdfast_message
   set position = seq, xact = null, claimable_at = max(claimable_at, :now),
       head = seq in (select value from json_each(:heads))
 where xact = 2
