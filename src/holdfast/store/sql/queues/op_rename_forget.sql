-- The name may be a handler's again.
delete from holdfast.rename where old = :queue returning new
