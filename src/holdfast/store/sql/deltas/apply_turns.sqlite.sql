-- The results of turns; holdfast_turned has a trigger that fences and stores each.
insert into holdfast_turned (row, at) select r.value, :now from json_each(:rows) r
