"""Runs as data for learning: windows of saved states for Grain, and files in the layouts of The Well and PDEBench."""
