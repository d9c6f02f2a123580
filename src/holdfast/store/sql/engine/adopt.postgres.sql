-- Unrouted messages go to those who subscribe to them now.
select holdfast.adopt(:count::int, :now::timestamptz)
