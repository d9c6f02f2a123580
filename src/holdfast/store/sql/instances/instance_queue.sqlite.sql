-- Where the messages of an instance go, and whether signals from before its start are still on their way.
select i.queue, i.state, exists (select 1 from holdfast_message m
                                  where m.queue = 'holdfast/signals' and m.stream = i.id and m.head and m.position is not null)
  from holdfast_instance i where i.id = :id
