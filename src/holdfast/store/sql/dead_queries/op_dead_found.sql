-- Dead letters for the statement that follows. Conditions are appended.
with found as (select d.* from holdfast.dead d
