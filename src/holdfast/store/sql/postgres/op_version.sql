-- The version that the schema has reached, and which functions are installed.
select version, functions from holdfast.schema_version
