   -- The subject begins with a text. By bytes, as its index is sorted, whatever the collation.
   and d.subject ~>=~ :subject_from::text and d.subject ~<~ :subject_to::text
