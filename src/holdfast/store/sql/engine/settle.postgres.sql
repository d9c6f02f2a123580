-- Apply settlements in the user's transaction; answers the seq of those whose lease was valid.
select holdfast.settle(:seq::bigint[], :run::bigint[], :epoch::int[], :ran::int[], :other::json, :move_from::bigint[],
                       :move_to::bigint[], :emits::json, :deltas::json, :keep::int, true, :now::timestamptz)
