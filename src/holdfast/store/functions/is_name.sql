-- Whether a text may be a name: 1 to so many characters that can be read, printed and compared (names.py says why).
create or replace function holdfast.is_name(p_text text, p_longest int) returns boolean
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    return length(p_text) between 1 and p_longest and p_text !~ '[\u0001-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069\ufeff]'
       and p_text !~ '^\s|\s$';
end
$$;
