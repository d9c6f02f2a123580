-- Unrouted messages go to queues that subscribe to them now.
select holdfast.adopt(:count::int, :now::timestamptz)
