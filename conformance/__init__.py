"""The suite: the specification of activation checkpointing, one clause a test.

Read in this order: `backend` (what an implementation brings), `under_test` (how a program is run) with `handles` (what
the program is handed), `observing` and `comparing`, `verdict` (what is concluded), `clause` (how a clause is stated),
then the chapters `test_*.py`. `programs` and `explore` draw programs nobody wrote. The rest is machinery: `entry` and
`plugin` (pytest), `case` (one clause on one variant), `resolve` and `preflight` (finding an adapter), `isolation`
(crashes and hangs), `processes` (several of them in one case), `baseline` and `gate` (known failures), `spec`,
`manifest` and `report/` (what is written).
"""
