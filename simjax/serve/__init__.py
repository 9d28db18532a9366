"""Runs behind HTTP: requests that arrive together are computed together."""
