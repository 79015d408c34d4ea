"""Behaviours that were considered and are no clause, each with the reason. Their ids stay taken."""

LEFT_OUT: dict[str, str] = {}
