-- Operators' actions that match, the newest first.
select number, at, who, action, queue, target, count, was, became, why, filter, ids from holdfast.audit
 where (:who::text is null or who = :who)
   and (:action::text is null or action = :action or starts_with(action, :action || '.'))
   and (:queue::text is null or queue = :queue)
   and (:target::text is null or target = :target or strpos(ids, to_json(:target::text)::text) > 0)
   and (:since::timestamptz is null or at >= :since)
 order by number desc limit :limit::int
