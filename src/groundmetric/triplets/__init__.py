"""Triplets (i, j, k): the anchor j should be nearer to i than to k, because the labels say so."""

from .choosing import Supervision, nearest_triplets, random_triplets
from .indices import Triplets
from .targets import Classes, Ordered, Target, TargetDistances

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
