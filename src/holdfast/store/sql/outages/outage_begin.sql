-- An outage begins, unless one is open. No row: another process was faster.
insert into holdfast.outage (number, cause, began_at, noticed_at, down_since, back_at, oldest_at)
select coalesce(max(o.number), 0) + 1, :cause, :began_at::timestamptz, :noticed_at::timestamptz, :down_since::timestamptz,
       :back_at::timestamptz, :oldest_at::timestamptz from holdfast.outage o where true
    on conflict do nothing returning number
