"""The suite: the specification of activation checkpointing, one clause a test.

Read in this order: `backend` (what an implementation brings), `under_test` (how a program is run) with `handles` (what
the program is handed), `observing` and `comparing`, `verdict` (what is concluded), `clause` (how a clause is stated),
then the chapters `test_*.py`. Programs nobody wrote: `programs` draws them, of the `operations` and of what `grammar`
says that may be drawn, and `explore` tries them. The rest is machinery: `entry` and `plugin` (pytest), `running/` (a
run), `case` (one clause on one variant) with `restoring` and `control`, `processes` (several of them in one case),
`baseline` and `gate` (known failures), `report/`, `reproducer/`, `spec` and `manifest` (what is written), `command/`
(the command line).
"""
