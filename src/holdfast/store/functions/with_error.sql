-- An error history with one more entry, of which the last `p_keep` are kept.
create or replace function holdfast.with_error(p_errors jsonb, p_at timestamptz, p_reason int, p_text text, p_keep int)
returns jsonb language sql stable as $$
    select case when p_text is null then p_errors else (
        select jsonb_agg(x.e order by x.n) from (
            select e, n from jsonb_array_elements(coalesce(p_errors, '[]'::jsonb) || jsonb_build_array(
                jsonb_build_object('at', p_at, 'reason', p_reason, 'text', p_text))) with ordinality t (e, n)
             order by n desc limit p_keep) x) end
$$;
