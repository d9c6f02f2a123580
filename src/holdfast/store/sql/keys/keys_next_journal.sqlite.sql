-- Rows of journals that are sealed with another key than the one that seals now, or with `plain` not at all.
select id, execution, turn, part, 'journal/' || execution || '/' || turn || '/' || part || '/' || id, 'holdfast.text',
       body
  from holdfast_journal
 where (id, execution, turn, part) > (:a, :b, :c, :d) and substr(body, 1, length(:mark)) <> :mark
   and (:plain or substr(body, 1, length(:sealed)) = :sealed)
 order by id, execution, turn, part limit :limit
