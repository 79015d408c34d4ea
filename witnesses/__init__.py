"""Witnesses: implementations with one seeded fault each, to show that the suite would notice.

`witness` says how one is stated, `kill_matrix` runs them; the rest is one file a chapter, named like it.
"""
