"""Modules that need torch, patpy or pertpy are left out of the collection of doctests where these are not installed."""

import importlib.util

_NEEDS = {"neural/*": "torch", "integrations/patpy.py": "patpy", "integrations/pertpy.py": "pertpy"}
collect_ignore_glob = [
    f"src/groundmetric/{where}" for where, name in _NEEDS.items() if not importlib.util.find_spec(name)
]
