-- When any worker was last seen; no time: none is known.
select max(seen_at) from holdfast.worker
