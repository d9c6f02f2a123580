-- What Holdfast did not make is not replaced.
do $$
declare v_found text;
begin
    select string_agg(x.found, ', ') into v_found from (:question) x (found);
    if v_found is not null then
        raise exception 'holdfast: nothing was migrated: the schema holds what Holdfast did not make and needs the name of: %',
            v_found using hint = 'Rename it, or choose another schema for Holdfast with ?schema=NAME in the URL.';
    end if;
end
$$
