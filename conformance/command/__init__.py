"""The command line `ckptspec`, one subcommand a file: start in `group.py`. `console.py` and `reading.py` serve all.

A run of the suite needs none of this: click and rich come with the extra `cli`.
"""
