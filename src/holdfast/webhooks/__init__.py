"""What senders and receivers of webhooks need: signatures, and a POST that cannot be redirected or delayed."""
