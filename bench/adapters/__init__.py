"""One contestant each: `python -m bench.adapters.NAME prepare|publish|work '{...}'`, one line of JSON as the answer."""
