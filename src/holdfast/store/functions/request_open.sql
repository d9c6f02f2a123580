-- Store a request, open, with times that the caller decided. Answers 0 if there is one with this id, of which nothing is
-- changed; 2 if results for it were there before; else 1.
create or replace function holdfast.request_open(
    p_id uuid, p_kind text, p_variant text, p_type text, p_stream text, p_subject text, p_body text,
    p_created_at timestamptz, p_deadline timestamptz, p_soft_at timestamptz, p_next_at timestamptz)
returns int
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    -- step: request_open
    insert into holdfast.request (id, kind, variant, type, stream, subject, body, created_at, deadline, soft_at, next_at)
    values (p_id, p_kind, p_variant, p_type, p_stream, p_subject, p_body, p_created_at, p_deadline, p_soft_at, p_next_at)
        on conflict (id) do nothing;
    if not found then
        return 0;
    end if;
    -- A worker looks once a second, and knows then when to look next: it is woken only for what is sooner.
    if p_next_at < p_created_at + interval '2 seconds' then
        perform pg_notify('holdfast', 'due') from (select 1 from holdfast.worker w where w.asleep limit 1) w;
    end if;
    return case when exists (select from holdfast.request_result x where x.request = p_id and x.standing = 'early') then 2
                else 1 end;
end
$$;
