"""RETAIN: backward more than once."""
