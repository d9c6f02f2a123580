-- End leases that their holder will not end.
select holdfast.recover(:worker::bigint, :running::bigint[], :ended::bigint[], :known::bigint[], :count::int, :now::timestamptz)
