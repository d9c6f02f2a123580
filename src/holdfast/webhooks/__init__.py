"""For senders and receivers of webhooks: signatures, and a POST that cannot be redirected or delayed."""
