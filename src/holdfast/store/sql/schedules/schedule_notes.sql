-- The occurrences of a schedule that were left out, the newest first.
select number, noted_at, first_key, last_key, count, why from holdfast.schedule_note
 where name = :name order by number desc limit :limit::int
