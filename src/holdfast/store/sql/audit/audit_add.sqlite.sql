-- The same action has changed more.
update holdfast_audit set count = count + :count, became = :became, ids = :ids where number = :number
