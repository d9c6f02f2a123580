"""What users declare: handlers, their options, and the Context that a call receives."""
