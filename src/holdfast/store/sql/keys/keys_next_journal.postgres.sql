-- Rows of journals that are sealed with another key than the one that seals now, or with `plain` not at all. Rows
-- that are locked are skipped: a rotation makes no one wait.
select id, execution, turn, part,
       'journal/' || execution::text || '/' || turn::text || '/' || part::text || '/' || id, 'holdfast.text', body
  from holdfast.journal
 where (id, execution, turn, part) > (:a, :b::int, :c::int, :d::int) and left(body, length(:mark)) <> :mark
   and (:plain::boolean or left(body, length(:sealed)) = :sealed)
 order by id, execution, turn, part limit :limit::int for update skip locked
