-- Take up to so many whole tokens from a bucket that fills at a rate up to its burst. No row: there was not a whole
-- one. The same arithmetic as rules/rate.py. The row is locked before its values are read, so that concurrent takers
-- wait for each other.
insert into holdfast.rate as r (name, tokens, at, granted)
values (:name, :burst::float8 - least(:wanted::float8, :burst::float8), coalesce(:now::timestamptz, clock_timestamp()),
        least(:wanted::int, :burst::int))
    on conflict (name) do update set
       granted = floor(least(:wanted::float8, :burst::float8,
           r.tokens + greatest(0, extract(epoch from excluded.at - r.at)::float8) * :per_second::float8)),
       tokens = least(:burst::float8,
           r.tokens + greatest(0, extract(epoch from excluded.at - r.at)::float8) * :per_second::float8)
           - floor(least(:wanted::float8, :burst::float8,
           r.tokens + greatest(0, extract(epoch from excluded.at - r.at)::float8) * :per_second::float8)),
       at = greatest(r.at, excluded.at)
     where least(:burst::float8,
           r.tokens + greatest(0, extract(epoch from excluded.at - r.at)::float8) * :per_second::float8) >= 1::float8
returning r.granted
