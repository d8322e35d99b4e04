"""Optimal transport: one problem through one door, `solve`, and many pairs at a time for the learner."""

from pathlib import Path

from .stale import drop_stale_kernels

drop_stale_kernels(Path(__file__).parent)  # before the kernels are looked up

from .door import solve  # noqa: E402
from .plan import Basis, Plan, Status  # noqa: E402

__all__ = ["Basis", "Plan", "Status", "solve"]
