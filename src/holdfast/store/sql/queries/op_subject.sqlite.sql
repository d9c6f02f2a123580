   -- The subject begins so.
   and d.subject >= :subject_from and d.subject < :subject_to
