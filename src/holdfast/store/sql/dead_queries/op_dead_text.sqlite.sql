   -- The error history contains a text.
   and exists (select 1 from json_each(d.errors) e where instr(lower(json_extract(e.value, '$.text')), lower(:text)) > 0)
