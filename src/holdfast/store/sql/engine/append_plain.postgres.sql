-- Store messages of one type that have neither stream nor dedupe key nor queue nor time.
select holdfast.append_plain(:id::uuid[], :type::text, :body::text[], :subject::text[], :headers::text[],
    :now::timestamptz)
