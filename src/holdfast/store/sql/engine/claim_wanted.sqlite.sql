-- Which of these few queues have heads, whatever other queues have.
select j.value from json_each(:queues) j
 where exists (select 1 from holdfast_message m where m.head and m.vanished = 0 and m.queue = j.value)
