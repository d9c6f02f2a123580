-- Take up to so many whole tokens from a bucket that fills at a rate up to its burst. No row: there was not a whole one.
-- The same arithmetic as rules/rate.py.
insert into holdfast_rate as r (name, tokens, at, granted)
values (:name, :burst - min(:wanted, :burst), :now, min(:wanted, :burst))
    on conflict (name) do update set
       granted = cast(min(:wanted, :burst, r.tokens + max(0, excluded.at - r.at) / 1000000.0 * :per_second) as integer),
       tokens = min(:burst, r.tokens + max(0, excluded.at - r.at) / 1000000.0 * :per_second)
           - cast(min(:wanted, :burst, r.tokens + max(0, excluded.at - r.at) / 1000000.0 * :per_second) as integer),
       at = max(r.at, excluded.at)
     where min(:burst, r.tokens + max(0, excluded.at - r.at) / 1000000.0 * :per_second) >= 1
returning granted
