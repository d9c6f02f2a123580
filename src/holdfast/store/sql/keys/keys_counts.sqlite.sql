-- How many bodies are sealed with which key; null: not sealed.
select place, key, count(*) from (
select 'message' as place, case when substr(body, 1, length(:sealed)) = :sealed and json_valid(body) then json_extract(body, '$.key') end as key
  from holdfast_message where body is not null
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
select 'schedule' as place, case when substr(body, 1, length(:sealed)) = :sealed and json_valid(body) then json_extract(body, '$.key') end as key
  from holdfast_schedule where body is not null
 union all
select 'request' as place, case when substr(body, 1, length(:sealed)) = :sealed and json_valid(body) then json_extract(body, '$.key') end as key
  from holdfast_request
 union all
select 'request_result' as place, case when substr(body, 1, length(:sealed)) = :sealed and json_valid(body) then json_extract(body, '$.key') end as key
  from holdfast_request_result) x
 group by place, key order by place, key
