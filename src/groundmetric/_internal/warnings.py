"""Classes of warnings that code reacts to: nobody has to read the text of a warning to know what it says."""

from __future__ import annotations

from sklearn.exceptions import ConvergenceWarning


class InterruptedWarning(ConvergenceWarning):
    """Training was ended by the user (Ctrl-C) before it had converged: what was learned so far is kept."""
