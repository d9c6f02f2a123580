"""The verbs of storage as plans: generators that yield SQL statements and receive rows."""
