"""`holdfast worker`: the supervisor, its worker processes, and the metrics endpoint."""
