-- Where an instance stands, for its next turn.
select start, execution, turn, mark, state, reply from holdfast.instance where id = :id
