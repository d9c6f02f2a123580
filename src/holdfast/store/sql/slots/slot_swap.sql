-- The new holders, if the version is still the one that was read. No row: another process was faster.
insert into holdfast.slot as s (name, version, holders)
values (:name, :version::bigint + 1, :holders)
    on conflict (name) do update set version = excluded.version, holders = excluded.holders
     where s.version = :version::bigint
returning version
