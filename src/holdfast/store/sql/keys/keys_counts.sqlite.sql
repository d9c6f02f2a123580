-- How many bodies are sealed with which key; null: not sealed.
select place, key, count(*) from (
select 'message' as place, case when substr(body, 1, length(:sealed)) = :sealed and json_valid(body) then json_extract(body, '$.key') end as key
  from holdfast_message where body is not null
 union all
select 'scheduled' as place, case when substr(body, 1, length(:sealed)) = :sealed and json_valid(body) then json_extract(body, '$.key') end as key
  from holdfast_scheduled where body is not null
 union all
select 'dead' as place, case when substr(body, 1, length(:sealed)) = :sealed and json_valid(body) then json_extract(body, '$.key') end as key
  from holdfast_dead where body is not null
 union all
select 'death' as place, case when substr(body, 1, length(:sealed)) = :sealed and json_valid(body) then json_extract(body, '$.key') end as key
  from holdfast_death where body is not null
 union all
select 'event' as place, case when substr(body, 1, length(:sealed)) = :sealed and json_valid(body) then json_extract(body, '$.key') end as key
  from holdfast_event where body is not null
 union all
select 'journal' as place, case when substr(body, 1, length(:sealed)) = :sealed and json_valid(body) then json_extract(body, '$.key') end as key
  from holdfast_journal where body is not null
 union all
select 'result' as place, case when substr(result, 1, length(:sealed)) = :sealed and json_valid(result) then json_extract(result, '$.key') end as key
  from holdfast_instance where result is not null
 union all
select 'status' as place, case when substr(status, 1, length(:sealed)) = :sealed and json_valid(status) then json_extract(status, '$.key') end as key
  from holdfast_instance where status is not null
 union all
select 'schedule' as place, case when substr(body, 1, length(:sealed)) = :sealed and json_valid(body) then json_extract(body, '$.key') end as key
  from holdfast_schedule where body is not null
 union all
select 'request' as place, case when substr(body, 1, length(:sealed)) = :sealed and json_valid(body) then json_extract(body, '$.key') end as key
  from holdfast_request
 union all
select 'request_result' as place, case when substr(body, 1, length(:sealed)) = :sealed and json_valid(body) then json_extract(body, '$.key') end as key
  from holdfast_request_result) x
 group by place, key order by place, key
