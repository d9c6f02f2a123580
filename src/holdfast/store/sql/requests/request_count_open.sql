select kind, count(*) from holdfast.request where state = 'open' group by kind
