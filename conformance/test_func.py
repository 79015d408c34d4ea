"""FUNC: custom functions and transforms."""
