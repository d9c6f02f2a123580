-- How many tokens a bucket had, and when. No row: nobody has taken from it.
select tokens, at from holdfast.rate where name = :name
