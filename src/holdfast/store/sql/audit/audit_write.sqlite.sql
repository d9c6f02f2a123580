-- An operator's action, stored with what it did.
insert into holdfast_audit (at, who, action, queue, target, count, was, became, why, filter, ids)
values (:now, :who, :action, :queue, :target, :count, :was, :became, :why, :filter, :ids)
returning number
