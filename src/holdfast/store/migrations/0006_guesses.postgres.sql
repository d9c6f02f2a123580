-- A message that is published alone is inserted with a guess of its position; if the stream's row shows at the commit
-- that no other came into the stream since, it is not written again (place_mine).
alter table holdfast.stream add column last bigint;   -- the last position; null: other messages came otherwise since
