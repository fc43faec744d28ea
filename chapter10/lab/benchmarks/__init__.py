"""What the benchmark measures, one area a file, and the instrument that all of them use."""
