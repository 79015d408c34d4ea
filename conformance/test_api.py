"""API: the entry point, its options and its names."""
