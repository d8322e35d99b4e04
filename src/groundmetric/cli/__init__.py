"""The command line: thin commands over the package.

Exit codes: 0 done, 1 failed, 2 bad input, 130 interrupted (Ctrl-C), 143 terminated (SIGTERM).
"""

from .main import main

__all__ = ["main"]


def __dir__() -> list[str]:
    return __all__
