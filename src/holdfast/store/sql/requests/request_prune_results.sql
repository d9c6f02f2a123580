delete from holdfast.request_result where request = any (:ids::uuid[])
