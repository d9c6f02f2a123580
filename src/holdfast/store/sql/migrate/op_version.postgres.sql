-- The version that the schema has reached, and which functions are installed. As JSON: earlier versions had fewer columns.
select to_jsonb(v)::text from holdfast.schema_version v
