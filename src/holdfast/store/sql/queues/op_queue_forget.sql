-- A queue in which nothing is pending is removed. No row: there was none of that name.
delete from holdfast.queue where name = :queue returning name
