-- The server's settings about the durability of a commit, and whether it cleans up.
select current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit'),
       current_setting('full_page_writes'), current_setting('autovacuum')
