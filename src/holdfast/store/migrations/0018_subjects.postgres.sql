-- Messages, lines of history and dead letters are found by their subject: an index for each, for those that have one. By
-- text_pattern_ops also by how a subject begins (`Submission/`), whatever the collation of the database.
create index message_subject on holdfast.message (subject text_pattern_ops, seq) where subject is not null;
create index history_subject on holdfast.history (subject text_pattern_ops, ended_at) where subject is not null;
create index dead_subject on holdfast.dead (subject text_pattern_ops, died_at) where subject is not null;
