"""THREAD: threads."""
