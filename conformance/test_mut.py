"""MUT: mutation of arguments, captures and intermediates."""
