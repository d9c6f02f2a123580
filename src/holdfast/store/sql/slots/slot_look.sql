-- The holders of a limit, if any worker has asked for its slots.
select version, holders from holdfast.slot where name = :name::text
