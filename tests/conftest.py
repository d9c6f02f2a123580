"""Every test may use what these two plugins give: databases, and the record of what a run has shown."""

pytest_plugins = ["tests.databases", "tests.reporting"]
