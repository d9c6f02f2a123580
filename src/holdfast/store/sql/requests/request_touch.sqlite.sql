-- Takes the write lock, if the caller's transaction does not have it yet.
update holdfast_request set results = results where id in (select value from json_each(:ids))
