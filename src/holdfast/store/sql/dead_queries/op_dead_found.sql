-- Dead letters for what follows. What is asked for is put behind it.
with found as (select d.* from holdfast.dead d
