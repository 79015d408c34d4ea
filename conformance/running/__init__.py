"""A run, from the command line to its last line.

Read in this order: `plan` (what it is about) with `resolve`, `preflight` and `selection`; `controller` (the book that
is kept) with `isolation`, `error_output` and `closing`; `worker` (where cases are executed).
"""
