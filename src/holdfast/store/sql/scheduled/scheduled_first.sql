-- When the first of what is scheduled is due, and the time. `since`: what is due earlier is not looked at, so that rows which
-- are gone but not cleaned up yet are not walked through.
select (select s.claimable_at from holdfast.scheduled s where s.claimable_at >= :since::timestamptz
         order by s.claimable_at limit 1), :now
