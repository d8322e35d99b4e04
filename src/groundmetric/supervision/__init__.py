"""Triplets (i, j, k): the anchor j should be nearer to i than to k, because the labels say so."""

from .targets import ClassTarget, DistanceTarget, OrderedTarget, Target
from .triplets import Supervision, Triplets, nearest_triplets, random_triplets

__all__ = [
    "ClassTarget",
    "DistanceTarget",
    "OrderedTarget",
    "Supervision",
    "Target",
    "Triplets",
    "nearest_triplets",
    "random_triplets",
]
