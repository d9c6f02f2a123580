-- Remove a rename, so that a handler may use the old name again.
delete from holdfast.rename where old = :queue returning new
