-- An action has changed more rows.
update holdfast.audit set count = count + :count::int, became = :became::text, ids = :ids::text where number = :number
