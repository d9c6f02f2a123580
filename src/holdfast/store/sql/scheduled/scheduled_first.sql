-- When the first scheduled message is due, and the time. `since`: those due earlier are not searched, so that rows which
-- are gone but not cleaned up yet are not read.
select (select s.claimable_at from holdfast.scheduled s where s.claimable_at >= :since::timestamptz
         order by s.claimable_at limit 1), :now
