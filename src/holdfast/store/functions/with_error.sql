-- An error history with one more entry, of which the last `p_keep` are kept.
create or replace function holdfast.with_error(p_errors jsonb, p_at timestamptz, p_reason int, p_text text, p_keep int)
returns jsonb language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    if p_text is null then
        return p_errors;
    end if;
    p_errors := coalesce(p_errors, '[]'::jsonb) || jsonb_build_array(
        jsonb_build_object('at', p_at, 'reason', p_reason, 'text', p_text));
    while jsonb_array_length(p_errors) > p_keep loop
        p_errors := p_errors - 0;
    end loop;
    return p_errors;
end
$$;
