"""HOOK: hooks."""
