"""One self-contained HTML page about a run: what was learned, how good it is, and what tells the labels apart."""

from .content import Content, Part
from .run import Run
from .writing import REPORT, collect, save, write

__all__ = ["REPORT", "Content", "Part", "Run", "collect", "save", "write"]
