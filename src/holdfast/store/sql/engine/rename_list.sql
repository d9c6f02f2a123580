-- Handlers that have another name now.
select old, new from holdfast.rename
