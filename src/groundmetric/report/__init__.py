"""One self-contained HTML page about a run: what was learned, how good it is, and what tells the labels apart."""

from .._internal.validation import need

need("jinja2", "a report")  # before any module of this package asks for it in vain

from .collect import collect  # noqa: E402
from .content import Content, Part, Picture  # noqa: E402
from .run import Run  # noqa: E402
from .write import REPORT, save, write  # noqa: E402

__all__ = ["REPORT", "Content", "Part", "Picture", "Run", "collect", "save", "write"]


def __dir__() -> list[str]:
    return __all__
