   -- The error history contains a text.
   and exists (select 1 from jsonb_array_elements(d.errors) e where strpos(lower(e ->> 'text'::text), lower(:text)) > 0)
