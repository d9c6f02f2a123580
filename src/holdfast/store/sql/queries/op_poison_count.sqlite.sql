-- How many pending messages have failed so often that they may be poison.
select count(*) from holdfast_message where attempts >= :attempts and status & 32768 = 32768
