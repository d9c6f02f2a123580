"""A worker: the loop that exchanges results for work, and how handlers are called and settled."""
