-- The id is still unique in its queue, but no question by queue can go through this index: when the tables are believed
-- empty all indexes cost the same, and each look into a stream read all messages of the queue (docs/decisions/0010).
-- POSIX is C by another name, which makes it another collation than that of the column, and of the questions.
create unique index message_id_again on holdfast.message (id, queue collate "POSIX");
drop index holdfast.message_id;
alter index holdfast.message_id_again rename to message_id;
