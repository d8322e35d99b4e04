"""Interpretation: significance and stability of features, axes, flows, relevance of kinds of points, batch effects.

>>> import groundmetric as gm
>>> D, y = gm.datasets.make_modes(points_per_mode=10, offsets=(1.5, 7.5, 13.5), random_state=0)
>>> result = gm.interpret.feature_significance(D, y, n_permutations=99, random_state=0)
>>> result.table()["feature"][0]
'signal'
"""

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
