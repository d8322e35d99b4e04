"""When the penalty outweighs what the labels can gain, the best W is 0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Where the penalty is below this share of what it was, and the mean hinge above this share of the margin.
_PENALTY, _HINGE = 0.01, 0.98


def has_vanished(history: Mapping[str, Any], margin: float, strength: float) -> bool:
    """Whether W has shrunk to nearly 0, so that its direction is chance: distances no longer matter to any triplet.

    >>> has_vanished({"loss": [0.6, 0.995], "active": [0.7, 1.0], "penalty": [0.6, 0.003]}, margin=1.0, strength=1.0)
    True
    """
    if strength == 0.0 or not len(history["loss"]):
        return False
    loss, active, penalty = (history[name][-1] for name in ("loss", "active", "penalty"))
    return bool(active == 1.0 and loss > _HINGE * margin and penalty < _PENALTY * strength)
