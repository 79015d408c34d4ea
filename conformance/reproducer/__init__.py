"""Stand-alone reproducers: a failed case as a short script of the library's own calls, made from the clause's source.

In reading order: `script` (from a case to a script), `fault` (what it shows), `program` (the clause's text),
`exploring` (a clause about drawn programs), `folding` (the case's parameters decided), `trimming` (other faults left
out), `spelling` (the library's words), `vocabulary` (what scripts are made of, and `stage/`, the suite's part of it),
`source` (text with replacements), `wrapping` (of lines); then `writing` (a run's scripts) and `__main__`, which runs
those of a report.
"""
