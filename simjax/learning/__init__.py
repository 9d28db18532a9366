"""Learned terms of equations, trained through the solver or on forces, over the saved states of many runs."""
