-- An operator's action, stored with what it did.
insert into holdfast.audit (at, who, action, queue, target, count, was, became, why, filter, ids)
values (:now, :who, :action, :queue::text, :target::text, :count::int, :was::text,
        :became::text, :why::text, :filter::text, :ids::text)
returning number
