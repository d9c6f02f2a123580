-- Give messages of occurrences their places. Their time stays as it is: an older one is claimed first.
update holdfast_message set position = seq, xact = null, head = seq in (select value from json_each(:heads)) where xact = 2
