-- How many dead letters there are. What is asked for is put behind it.
select count(*) from holdfast.dead d
