"""Measurements of simjax, and comparisons with other codes; `python -m benchmarks` runs the comparisons."""
