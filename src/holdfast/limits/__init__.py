"""What holds work back for all workers together: circuit breakers, rates and slots, shared through the store."""
