select id, request, received_at, failed from holdfast.request_early(:ids::uuid[])
