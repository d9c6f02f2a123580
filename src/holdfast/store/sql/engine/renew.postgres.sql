-- Make leases last longer; answers those lost and those asked to be cancelled.
select seq, lost from holdfast.renew(:worker::bigint, :seq::bigint[], :epoch::int[], :lease::float8, :now::timestamptz)
