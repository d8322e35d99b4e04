"""Modules that need torch are left out of the collection of doctests where it is not installed."""

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("torch") else ["src/groundmetric/neural/*"]
