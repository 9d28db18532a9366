"""Compiled programs read without the machine: bytes, collectives and the time of a step on a pod that is not there."""
