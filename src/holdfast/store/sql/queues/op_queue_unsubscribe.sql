-- New messages do not go to this queue any more.
delete from holdfast.subscription where queue = :queue returning pattern
