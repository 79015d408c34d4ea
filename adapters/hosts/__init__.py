"""Hosts: array libraries with their differentiation, knowing nothing of checkpointing."""
