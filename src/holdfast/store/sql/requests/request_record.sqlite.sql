insert into holdfast_request_result (id, request, received_at, standing, failed, body, source)
select value ->> 'id', value ->> 'request', value ->> 'received_at', value ->> 'standing', value ->> 'failed', value ->> 'body',
       value ->> 'source'
  from json_each(:rows) where true
    on conflict (request, source) where source is not null do nothing
returning id
