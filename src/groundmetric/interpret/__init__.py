"""Reading a metric: which features matter and how sure that is, along which axes, in which points, and what moves.

>>> import groundmetric as gm
>>> D, y = gm.datasets.make_modes(points_per_mode=10, offsets=(1.5, 7.5, 13.5), random_state=0)
>>> learner = gm.GroundMetricLearner(max_epochs=5, random_state=0).fit(D, y)
>>> gm.interpret.read_features(learner, D, y, annotation="mode").top(1)
['signal']
"""

from .axes import Axes, canonical_axes
from .enrichment import (
    Enrichment,
    benjamini_hochberg,
    enrich_axes,
    g_profiler,
    over_representation,
    rank_enrichment,
    read_gmt,
)
from .flows import Flow, Movement, barycentric, flow, movement
from .importance import FeaturePairs, FeatureReading, feature_pairs, read_features
from .relevance import AnnotationRelevance, annotation_relevance, summarise_points
from .stability import Discoveries, Stability, discoveries, stability

__all__ = [
    "AnnotationRelevance",
    "Axes",
    "Discoveries",
    "Enrichment",
    "FeaturePairs",
    "FeatureReading",
    "Flow",
    "Movement",
    "Stability",
    "annotation_relevance",
    "barycentric",
    "benjamini_hochberg",
    "canonical_axes",
    "discoveries",
    "enrich_axes",
    "feature_pairs",
    "flow",
    "g_profiler",
    "movement",
    "over_representation",
    "rank_enrichment",
    "read_features",
    "read_gmt",
    "stability",
    "summarise_points",
]
