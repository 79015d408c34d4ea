"""Adapters: small files that let the suite run on an implementation. An adapter translates; it never judges.

Read `torch_adapter.py` first, then its host in `hosts/torch_host.py`. `baselines/` holds what each is known to break.
"""
