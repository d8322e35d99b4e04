"""Report of a run: one self-contained HTML page."""

from .._internal.validation import need

need("jinja2", "a report")  # before a module of this package imports it

from .page import write  # noqa: E402

__all__ = ["write"]


def __dir__() -> list[str]:
    return __all__
