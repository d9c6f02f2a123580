-- A schedule ends. What it has fired stays; no row: there is none of that name.
delete from holdfast.schedule where name = :name returning origin
