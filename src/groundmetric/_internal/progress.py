"""Progress on the terminal: bars that are gone when the work is done. The one place that knows tqdm.

Nothing is drawn where standard error is no terminal (a log file, a pipe, a test), so callers only pass on `verbose`.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from tqdm import tqdm
from tqdm import tqdm as Bar


def progress_bar(total: float | None, title: str, unit: str, *, show: bool = True, **look: Any) -> Bar:
    """A bar, as a context manager with `update`, `set_postfix` and `write`.

    Parameters
    ----------
    total : float or None
        Units of work; None where that is not known.
    title, unit : str
        What is done, and what is counted: "distances", "pair".
    show : bool
        False draws nothing anywhere.
    **look
        Options of tqdm, such as ``unit_scale``.
    """
    # disable=None is tqdm's way to say: only on a terminal
    return tqdm(total=total, desc=title, unit=unit, disable=None if show else True, leave=False, **look)


def write_line(text: str) -> None:
    """A line on standard error that no bar is drawn over."""
    tqdm.write(text, file=sys.stderr)


def use_thread_lock() -> None:
    """Lock bars among threads only.

    tqdm's own lock is a semaphore among processes as well, which a child that is killed leaves behind.
    """
    tqdm.set_lock(threading.RLock())
