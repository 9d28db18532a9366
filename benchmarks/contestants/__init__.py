"""Programs that take part in comparisons, each a process of its own: `python -m benchmarks.contestants.NAME FOLDER`."""
