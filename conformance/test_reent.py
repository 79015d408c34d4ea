"""REENT: what is peculiar to the reentrant form."""
