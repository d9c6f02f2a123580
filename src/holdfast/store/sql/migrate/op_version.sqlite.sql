-- The version that the schema has reached.
select coalesce(max(version), 0) from holdfast_schema
