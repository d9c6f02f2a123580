-- Outages that ended before a moment; the newest stays, so that no number is given twice.
delete from holdfast.outage
 where ended_at < :before::timestamptz and number < (select max(o.number) from holdfast.outage o) returning 1
