"""Every decision about a message, as pure functions: time (`now`) and chance (`roll`) are arguments."""
