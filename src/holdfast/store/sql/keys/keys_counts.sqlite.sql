-- How many bodies are sealed with which key; null: not sealed.
select x.place, case when substr(x.body, 1, length(:sealed)) = :sealed and json_valid(x.body) then json_extract(x.body, '$.key') end as key, count(*)
  from (select 'message' as place, body from holdfast_message union all
        select 'scheduled', body from holdfast_scheduled union all
        select 'dead', body from holdfast_dead union all
        select 'death', body from holdfast_death union all
        select 'event', body from holdfast_event union all
        select 'journal', body from holdfast_journal union all
        select 'result', result from holdfast_instance union all
        select 'status', status from holdfast_instance union all
        select 'schedule', body from holdfast_schedule union all
        select 'request', body from holdfast_request union all
        select 'request_result', body from holdfast_request_result) x
 where x.body is not null group by 1, 2 order by 1, 2
