-- Bring over what is due: how many, the time of the last, the queues. See functions/bring.sql.
select brought, last, queues from holdfast.bring(:count::int, :bytes::bigint, coalesce(:since::timestamptz, '-infinity'),
    :now::timestamptz)
