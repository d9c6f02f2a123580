-- How many bodies are sealed with which key; null: not sealed.
select place, key, count(*) from (
select 'message' as place, case when left(body, length(:sealed)) = :sealed then substring(body from '"key":"([^"]*)"') end as key
  from holdfast.message where body is not null
 union all
select 'scheduled' as place, case when left(body, length(:sealed)) = :sealed then substring(body from '"key":"([^"]*)"') end as key
  from holdfast.scheduled where body is not null
 union all
select 'dead' as place, case when left(body, length(:sealed)) = :sealed then substring(body from '"key":"([^"]*)"') end as key
  from holdfast.dead where body is not null
 union all
select 'death' as place, case when left(body, length(:sealed)) = :sealed then substring(body from '"key":"([^"]*)"') end as key
  from holdfast.death where body is not null
 union all
select 'event' as place, case when left(body, length(:sealed)) = :sealed then substring(body from '"key":"([^"]*)"') end as key
  from holdfast.event where body is not null
 union all
select 'journal' as place, case when left(body, length(:sealed)) = :sealed then substring(body from '"key":"([^"]*)"') end as key
  from holdfast.journal where body is not null
 union all
select 'result' as place, case when left(result, length(:sealed)) = :sealed then substring(result from '"key":"([^"]*)"') end as key
  from holdfast.instance where result is not null
 union all
select 'status' as place, case when left(status, length(:sealed)) = :sealed then substring(status from '"key":"([^"]*)"') end as key
  from holdfast.instance where status is not null
 union all
select 'schedule' as place, case when left(body, length(:sealed)) = :sealed then substring(body from '"key":"([^"]*)"') end as key
  from holdfast.schedule where body is not null
 union all
select 'request' as place, case when left(body, length(:sealed)) = :sealed then substring(body from '"key":"([^"]*)"') end as key
  from holdfast.request
 union all
select 'request_result' as place, case when left(body, length(:sealed)) = :sealed then substring(body from '"key":"([^"]*)"') end as key
  from holdfast.request_result) x
 group by place, key order by place, key
