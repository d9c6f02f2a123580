-- There are none: a place is a message's number here.
select null, null, null limit 0
