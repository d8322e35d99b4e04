"""A word when kernels are compiled, which is once after an installation and takes up to a minute."""

from __future__ import annotations

import logging
import sys

from numba.core import event

_MESSAGE = "groundmetric: compiling its kernels, once after an installation (up to a minute)"


class Notice(event.Listener):
    """Says so when the first kernel of this package is compiled; one that is found in numba's cache is not.

    It is logged as information, and shown where somebody is waiting: on a terminal or in a notebook.
    """

    def __init__(self) -> None:
        self.given = False

    def on_start(self, event: event.Event) -> None:
        kernel = event.data["dispatcher"].py_func
        if self.given or not kernel.__module__.startswith("groundmetric."):
            return
        self.given = True
        logging.getLogger("groundmetric").info(_MESSAGE)
        if "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty()):
            print(_MESSAGE, file=sys.stderr)

    def on_end(self, event: event.Event) -> None:
        pass


def announce_compilation() -> None:
    """Listen to numba from now on."""
    event.register("numba:compile", Notice())
