"""Stencils as Pallas kernels: one tile of the interior at a time, in the fast memory of a TPU or a GPU."""
