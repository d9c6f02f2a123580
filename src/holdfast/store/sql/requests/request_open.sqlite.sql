insert into holdfast_request (id, kind, variant, type, stream, subject, body, created_at, deadline, soft_at, next_at)
values (:id, :kind, :variant, :type, :stream, :subject, :body, :created_at, :deadline, :soft_at, :next_at)
    on conflict (id) do nothing
returning 1 + exists (select 1 from holdfast_request_result x where x.request = holdfast_request.id and x.standing = 'early')
