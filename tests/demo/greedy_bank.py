"""The bank's handlers without a catch-up: when the breaker has closed, everything goes at once."""

from holdfast.demo.bank import app

object.__setattr__(app.breaker("bank").policy, "catch_up", None)
