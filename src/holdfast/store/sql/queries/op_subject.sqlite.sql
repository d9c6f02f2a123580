   -- The subject begins with a text.
   and d.subject >= :subject_from and d.subject < :subject_to
