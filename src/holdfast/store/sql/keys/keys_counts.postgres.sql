-- How many bodies are sealed with which key; null: not sealed.
select x.place, case when left(x.body, length(:sealed)) = :sealed then substring(x.body from '"key":"([^"]*)"') end as key, count(*)
  from (select 'message' as place, body from holdfast.message union all
        select 'scheduled', body from holdfast.scheduled union all
        select 'dead', body from holdfast.dead union all
        select 'death', body from holdfast.death union all
        select 'event', body from holdfast.event union all
        select 'journal', body from holdfast.journal union all
        select 'result', result from holdfast.instance union all
        select 'status', status from holdfast.instance union all
        select 'schedule', body from holdfast.schedule union all
        select 'request', body from holdfast.request union all
        select 'request_result', body from holdfast.request_result) x
 where x.body is not null group by 1, 2 order by 1, 2
