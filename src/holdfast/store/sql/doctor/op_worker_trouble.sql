-- Workers that had trouble with their database since a moment, the last first.
select w.name, w.trouble, w.trouble_at, w.timeouts, w.restarts from holdfast.worker w
 where w.trouble_at > :after::timestamptz order by w.trouble_at desc limit :limit::int
