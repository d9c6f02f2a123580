-- Which of these ids are messages already.
select distinct id from holdfast_message where id in (select value from json_each(:ids))
