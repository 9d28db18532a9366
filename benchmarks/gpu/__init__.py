"""What one GPU says: `python -m benchmarks gpu`."""
