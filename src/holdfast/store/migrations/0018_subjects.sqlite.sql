-- Messages, lines of history and dead letters are found by their subject, or by how it begins (`Submission/`): an index for
-- each, for those that have one.
create index holdfast_message_subject on holdfast_message (subject, seq) where subject is not null;
create index holdfast_history_subject on holdfast_history (subject, ended_at) where subject is not null;
create index holdfast_dead_subject on holdfast_dead (subject, died_at) where subject is not null;
