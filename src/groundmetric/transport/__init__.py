"""Optimal transport: one problem through one door, `solve`, and many pairs at a time for the learner."""

from .door import solve
from .plan import Basis, Plan, Status

__all__ = ["Basis", "Plan", "Status", "solve"]
