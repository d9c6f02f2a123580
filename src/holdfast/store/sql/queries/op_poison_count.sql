-- How many pending messages have failed so often that they may be poison.
select count(*) from holdfast.message where attempts >= :attempts::int and status & 32768 = 32768
