"""Schedules: messages that recur. The rules themselves are pure and are in `rules/`."""
