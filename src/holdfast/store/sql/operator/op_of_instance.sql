-- Whether a waiting timer is one of an orchestration's instance.
select 1 from holdfast.message m
 where m.seq = :seq and m.type = :type and exists (select 1 from holdfast.instance i where i.id = m.stream)
