-- A message that joins a stream is inserted with a guess of its position; if the stream's row shows at the commit that
-- nobody was faster, it is not written again (place_mine).
alter table holdfast.stream add column last bigint;   -- the last position given by a guess; null: given otherwise since
