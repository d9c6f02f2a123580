-- How many dead letters there are. Conditions are appended.
select count(*) from holdfast.dead d
