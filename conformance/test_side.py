"""SIDE: side effects and state."""
