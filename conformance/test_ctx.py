"""CTX: ambient state."""
