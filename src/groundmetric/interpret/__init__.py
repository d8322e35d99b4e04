"""Interpretation: significance and stability of features, axes, flows, relevance of kinds of points, batch effects."""

from .axes import Axes, canonical_axes
from .batches import BatchEffects, batch_effects
from .flows import AnnotationRelevance, Flow, annotation_relevance, flow
from .importance import Enrichment, Stability, over_representation, read_gmt, stability
from .patients import Counterfactual, Influence, counterfactual, influence
from .significance import Discoveries, FeatureSignificance, feature_significance

__all__ = [
    "AnnotationRelevance",
    "Axes",
    "BatchEffects",
    "Counterfactual",
    "Discoveries",
    "Enrichment",
    "FeatureSignificance",
    "Flow",
    "Influence",
    "Stability",
    "annotation_relevance",
    "batch_effects",
    "canonical_axes",
    "counterfactual",
    "feature_significance",
    "flow",
    "influence",
    "over_representation",
    "read_gmt",
    "stability",
]


def __dir__() -> list[str]:
    return sorted(__all__)
