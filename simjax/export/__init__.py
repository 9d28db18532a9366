"""Runs as programs in files, which need JAX alone: StableHLO, for any platform, with its gradient."""
