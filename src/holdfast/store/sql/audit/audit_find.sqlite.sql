-- Operators' actions that match, the newest first.
select number, at, who, action, queue, target, count, was, became, why, filter, ids from holdfast_audit
 where (:who is null or who = :who)
   and (:action is null or action = :action or substr(action, 1, length(:action) + 1) = :action || '.')
   and (:queue is null or queue = :queue)
   and (:target is null or target = :target or instr(ids, json_quote(:target)) > 0)
   and (:since is null or at >= :since)
 order by number desc limit :limit
