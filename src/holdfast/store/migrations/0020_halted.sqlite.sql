-- Streams that are halted are few, and asked for by every page that shows what is wrong.
create index holdfast_stream_halted on holdfast_stream (queue, name) where halted_by is not null;
