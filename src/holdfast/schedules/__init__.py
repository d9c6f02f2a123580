"""Schedules: messages that recur. The rules themselves are pure and stand in `rules/`."""
