-- Count the messages that wait for their place into their streams.
insert into holdfast_stream (queue, name, open)
select queue, stream, count(*) from holdfast_message where xact = 2 group by queue, stream
    on conflict (queue, name) do update set open = open + excluded.open
