select name from holdfast.queue where name = any (:names::text[])
