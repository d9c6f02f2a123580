-- The id is still unique in its queue, but no question by queue can go through this index: when the tables are believed
-- empty all indexes cost the same, and each look into a stream read all messages of the queue (docs/decisions/0010).
drop index holdfast.message_id;
create unique index message_id on holdfast.message (id, (queue || ''));
