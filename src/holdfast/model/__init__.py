"""The nouns: what is stored, what a worker and a store exchange, what users pass in. No I/O and no decisions."""
