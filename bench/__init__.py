"""How fast Holdfast is beside its peers and beside the fewest SQL statements that could do the same: `make bench`.

`lines.py` says what is measured and which bars it must reach, `course.py` how one contestant is run and checked,
`adapters/` holds one short file for each contestant, `report.py` makes the table, the JSON, the charts and the
tables of docs/performance.md. `against.py` compares our own lines with those of another revision: `turns.py` says what
is measured of each, `revisions.py` sets the other one up.
"""
