"""Warnings that are ignored while a block runs, also in threads.

Warning filters belong to the process. Two threads inside `warnings.catch_warnings` restore each other's filters in the
wrong order, and filters stay for the rest of the process. Here the first thread to enter saves the filters and the last
thread to leave restores them.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_saved: list[warnings.catch_warnings[None]] = []
_depth = 0


@contextmanager
def muted(category: type[Warning] = UserWarning, message: str = "") -> Iterator[None]:
    """Ignore warnings of a category whose text begins with `message` (a regular expression).

    Warnings of other threads are ignored as well while any thread is in such a block.

    >>> import warnings
    >>> before = list(warnings.filters)
    >>> with muted():
    ...     warnings.warn("ignored")
    >>> warnings.filters == before
    True
    """
    global _depth
    with _lock:
        if _depth == 0:
            _saved.append(warnings.catch_warnings())
            _saved[-1].__enter__()
        _depth += 1
        warnings.filterwarnings("ignore", message, category)
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                _saved.pop().__exit__(None, None, None)
