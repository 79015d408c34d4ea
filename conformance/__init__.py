"""The suite: the specification of activation checkpointing, one clause a test.

Read in this order: `backend` (what an implementation brings), `under_test` (how a program is run and compared),
`verdict` (what is concluded), `clause` (how a clause is stated), then the chapters `test_*.py`. The rest is machinery:
`entry` and `plugin` (pytest), `resolve` and `preflight` (finding an adapter), `isolation` (crashes and hangs),
`baseline` (known failures), `report/` (what is written).
"""
