"""What a report shows, as plain data: `collect` makes it, `page.html.j2` shows it. A part that is None is left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

MOST_CLASSES = 60  # more can neither be told apart nor listed in a legend
MOST_COLUMNS = 24


@dataclass(frozen=True)
class Column:
    """Something known of every sample or cell: a class (codes are places in `values`, -1 missing) or a number."""

    name: str
    codes: np.ndarray
    values: list[str] | None = None

    @property
    def is_class(self) -> bool:
        return self.values is not None

    @property
    def groups(self) -> np.ndarray:
        """The order in which `pl` draws: class after class, those without one last; numbers are all alike."""
        if self.values is None:
            return np.zeros(len(self.codes), dtype=int)
        return np.where(self.codes < 0, len(self.values), self.codes)


@dataclass(frozen=True)
class SampleMap:
    """Samples in the plane and their distances; the first column is the label."""

    names: list[str]
    places: np.ndarray
    columns: list[Column]
    distances: np.ndarray
    order: np.ndarray
    kept_variance: float  # squared correlation of the distances in the plane with the distances
    out_of_bag: bool = False  # whether distances are by members trained on neither sample


@dataclass(frozen=True)
class CellMap:
    """Some cells along the first two axes of the learned space."""

    places: np.ndarray
    columns: list[Column]
    shares: list[float]
    of: int  # cells that they were drawn from


@dataclass(frozen=True)
class Field:
    """A column of a table; `digits` are those of a number (None: text), `bar` draws it as a bar behind.

    `link` is the kind of thing that a value names: the page leads there ("axis": to that axis).
    """

    name: str
    digits: str | None = None
    bar: bool = False
    note: str = ""
    link: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of plain values. `choice` is the number of a column by whose values rows can be picked, `note` a text."""

    identifier: str
    caption: str
    fields: list[Field]
    rows: list[list[Any]]
    choice: int | None = None
    note: str = ""

    def choices(self) -> list[str]:
        """The values by which rows can be picked, short ones first: "Axis 2" comes before "Axis 10"."""
        assert self.choice is not None
        return sorted({str(row[self.choice]) for row in self.rows}, key=lambda text: (len(text), text))

    def largest(self, column: int) -> float:
        """What the longest bar of a column stands for."""
        if not self.fields[column].bar:
            return 0.0
        return max((row[column] for row in self.rows if row[column] is not None), default=0.0)


@dataclass(frozen=True)
class Axis:
    """Direction of the learned space: its share of the transport between labels, and what has to do with it.

    `types` are the cell types that other labels are farther in along this axis, and their shares of that.
    """

    name: str
    share: float
    ends: tuple[str, str] | None  # labels towards its low and its high end; None: they hardly differ along it
    genes: list[tuple[str, float]]
    processes: Table | None = None
    types: list[tuple[str, float]] = field(default_factory=list)

    def largest(self) -> float:
        """The weight that the longest bar stands for."""
        return max((abs(weight) for _, weight in self.genes), default=1.0) or 1.0


@dataclass(frozen=True)
class Evaluation:
    """Held-out scores of all methods, the first being what was learned; `test` is against chance."""

    score: str
    chance: float
    rows: list[dict[str, Any]]
    how: str
    test: dict[str, Any] | None
    notes: list[str]

    def table(self) -> Table:
        """A row per method."""
        fields = [Field("Method"), Field("Score", ".2f"), Field("Low", ".2f"), Field("High", ".2f"),
                  Field("Lead of learned", "+.2f"), Field("Lead low", "+.2f"), Field("Lead high", "+.2f"),
                  Field("p (Holm)", ".2g"), Field("Seconds", ".1f", note="per fold")]  # fmt: skip
        keys = ("value", "low", "high", "lead", "lead_low", "lead_high", "p", "seconds")
        rows = [[row["method"], *(row.get(key) for key in keys)] for row in self.rows]
        known = [k for k in range(len(fields)) if any(row[k] is not None for row in rows)]
        fields, rows = [fields[k] for k in known], [[row[k] for k in known] for row in rows]
        interval = ", with 95% intervals" if any(row["low"] is not None for row in self.rows) else ""
        caption = f"{self.name} on held-out samples{interval}"
        return Table("method-scores", caption[0].upper() + caption[1:], fields, rows)

    @property
    def name(self) -> str:
        """The score as people call it."""
        return {"r2": "R²"}.get(self.score, self.score.replace("_", " "))


@dataclass(frozen=True)
class Caution:
    """Something to know before believing the rest."""

    title: str
    text: str


@dataclass(frozen=True)
class Picture:
    """Figure of a section.

    Parameters
    ----------
    name : str
        Name of the figure, unique in the page: prefix of the identifiers in its SVG.
    alt : str
        Description for readers who do not see the figure.
    svg : bytes
        The figure as matplotlib writes it with ``format="svg"``.
    caption : str
        Text below the figure.

    Examples
    --------
    >>> import io
    >>> import groundmetric as gm
    >>> ax = gm.pl.scores({"learned": (0.9, 0.8, 0.95)})
    >>> ax.figure.savefig(svg := io.BytesIO(), format="svg")
    >>> gm.report.Picture("accuracy", "accuracy of 0.9", svg.getvalue(), "Accuracy on the second cohort").name
    'accuracy'
    """

    name: str
    alt: str
    svg: bytes
    caption: str


@dataclass(frozen=True)
class Part:
    """Section that the caller adds, at the end of the page or right after the summary.

    Parameters
    ----------
    identifier : str
        Target of the link in the contents; unique in the page.
    title : str
        Heading.
    text : str
        First paragraph.
    facts : dict of str to str
        Names and values, below the text.
    pictures : sequence of Picture, default=()
        Figures, below the facts.
    table : Table or None, default=None
        Table, below the figures.
    first : bool, default=False
        Whether the section follows the summary.

    Examples
    --------
    >>> import groundmetric as gm
    >>> part = gm.report.Part("cohort", "Cohort", "Two hospitals took part.", {"Patients": "16"})
    >>> part.title, part.first
    ('Cohort', False)
    """

    identifier: str
    title: str
    text: str
    facts: dict[str, str] = field(default_factory=dict)
    pictures: Sequence[Picture] = ()
    table: Table | None = None
    first: bool = False


@dataclass(frozen=True)
class Content:
    """Content of a page; `collect` computes it from a run, `save` writes it.

    Parameters
    ----------
    title : str
        Title of the page.
    subtitle : str
        Line below the title.
    label : str
        Name of the label that was learned.
    facts : dict of str to dict
        Groups of names and values: data, training, parameters and versions.
    summary : dict of str to str
        Questions that the page begins with, and their answers.
    cautions : list of Caution
        Warnings, each with a title and a text.
    samples : SampleMap
        Samples in the plane, and their distances.
    cells : CellMap or None
        Some of the cells, along the first two axes of the learned space; None: left out.
    genes : Table
        The most important features.
    feature : str
        What a feature is called: "gene" or "dimension".
    axes : list of Axis
        Directions of the learned space that are shown, with their genes.
    types : Table or None
        Cell types; None: left out.
    history : dict of str to array
        Training by epoch, as `pl.history` draws it; empty of an ensemble.
    evaluation : Evaluation or None
        Scores on held-out samples; None: left out.
    left_out : list of str
        What the page lacks, and how to get it.
    parts : sequence of Part, default=()
        Sections that the caller adds.
    kinds : Table or None, default=None
        Of an ensemble, the weights of its kinds of members.
    confusion : Table or None, default=None
        Labels of samples against those that were predicted while they were left out; None: left out.
    n_axes : int, default=0
        Number of all axes, those included that are not shown.
    pending : list of str
        What is still being computed: the page says so.

    Examples
    --------
    >>> import groundmetric as gm
    >>> adata = gm.datasets.make_cohort(4, 50, 200, random_state=0)
    >>> adata = gm.tl.learn(adata, "sample", "condition", method="ggml", n_components=2, random_state=0)
    >>> run = gm.report.Run(adata, gm.tl.samples(adata), None, {})
    >>> content = gm.report.collect(run, refits=0, evaluation=False)
    >>> content.label, content.feature, len(content.axes)
    ('condition', 'gene', 2)
    """

    title: str
    subtitle: str
    label: str
    facts: dict[str, dict[str, str]]
    summary: dict[str, str]
    cautions: list[Caution]
    samples: SampleMap
    cells: CellMap | None
    genes: Table
    feature: str  # what a feature is called
    axes: list[Axis]
    types: Table | None
    history: dict[str, np.ndarray]
    evaluation: Evaluation | None
    left_out: list[str] = field(default_factory=list)
    parts: Sequence[Part] = ()
    kinds: Table | None = None
    confusion: Table | None = None
    n_axes: int = 0
    pending: list[str] = field(default_factory=list)


def columns_of(obs: pd.DataFrame, first: list[str], most: int = MOST_CLASSES) -> tuple[list[Column], list[str]]:
    """All columns that can be coloured by, some of them first, and the names of those that cannot."""
    names = [*first, *(name for name in obs.columns if name not in first)]
    made = {name: column_of(str(name), obs[name], most) for name in names}
    usable = [column for column in made.values() if column is not None][:MOST_COLUMNS]
    shown = {column.name for column in usable}
    return usable, [str(name) for name in names if str(name) not in shown]


def column_of(name: str, column: pd.Series, most: int | None = MOST_CLASSES) -> Column | None:
    """Numbers with many values stay numbers; everything else is a class, unless there are too many of them."""
    numeric = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
    if numeric and column.nunique() > 8:
        return Column(name, column.to_numpy(dtype=np.float64, na_value=np.nan))
    codes, values = pd.factorize(column, sort=True)
    if most is not None and len(values) > most:
        return None
    return Column(name, codes, [str(value) for value in values])


def as_data(column: Column) -> dict[str, Any]:
    """For the scripts of the page: places of classes, or numbers in thousandths of their range."""
    if column.is_class:
        return {"name": column.name, "values": column.values, "codes": column.codes.tolist()}
    known = column.codes[np.isfinite(column.codes)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    shares = (column.codes - low) / ((high - low) or 1.0)
    codes = [-1 if not np.isfinite(share) else round(1000 * share) for share in shares]
    return {"name": column.name, "low": low, "high": high, "codes": codes}
