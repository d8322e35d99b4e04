"""Triplets (i, j, k): the anchor j should be nearer to i than to k, because the labels say so."""

from .targets import Classes, Ordered, Target, TargetDistances
from .triplets import Supervision, Triplets, nearest_triplets, random_triplets

__all__ = [
    "Classes",
    "Ordered",
    "Supervision",
    "Target",
    "TargetDistances",
    "Triplets",
    "nearest_triplets",
    "random_triplets",
]
