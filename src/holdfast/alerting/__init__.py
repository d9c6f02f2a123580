"""Where alerts go, and where old dead letters are archived."""
