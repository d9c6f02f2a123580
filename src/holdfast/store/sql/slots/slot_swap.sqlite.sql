-- The new holders, if the version is still the one that was read. No row: somebody was faster.
insert into holdfast_slot as s (name, version, holders)
values (:name, :version + 1, :holders)
    on conflict (name) do update set version = excluded.version, holders = excluded.holders
     where s.version = :version
returning version
