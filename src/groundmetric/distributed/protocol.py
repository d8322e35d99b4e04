"""What is sent away, and what every place that takes it must do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Errand:
    """A message for a function that may run anywhere, any number of times, with the same answer."""

    message: Any
    seconds: float = 1.0  # about how long it takes
    worker: str | None = None  # who has done the like before, and remembers


class Place(Protocol):
    """Where errands are run."""

    remembers: bool  # whether the same worker can be asked again

    def slots(self) -> dict[str, int]:
        """How many errands each worker runs at a time."""
        ...

    def run(self, function: Callable[[Any], Any], errands: list[Errand]) -> Iterator[tuple[int, Any]]:
        """The number and the answer of every errand, as they come in.

        A worker that dies, errs or does not answer is replaced by another, and at last by this process: an error is
        raised only if the function fails here too.
        """
        ...

    def at_the_end(self, function: Callable[[Any], Any], message: Any) -> None:
        """Note a call for every worker that can be reached when all is done."""
        ...

    def close(self) -> None:
        """Make the calls that were noted; nobody waits for them."""
        ...
