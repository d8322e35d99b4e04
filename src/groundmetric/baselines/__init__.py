"""Methods that a learned ground metric is compared with: what one would use instead of learning a metric.

`standard` makes the baselines that `groundmetric evaluate` and the report show. `SummaryModel` puts any scikit-learn
classifier or regressor on a vector per distribution, and `PointTransport` any scikit-learn transformer before optimal
transport.

>>> import groundmetric as gm
>>> D, y = gm.datasets.synth_2d(random_state=0)
>>> list(gm.baselines.standard())[:2]
['pseudobulk', 'moments']
>>> gm.baselines.SummaryModel("moments").fit(D, y).predict_proba(D[:4]).shape
(4, 3)
"""

from .distances import Composition, Euclidean, PointTransport, Summary
from .models import SummaryModel, TransportKernel, standard, titles

__all__ = [
    "Composition",
    "Euclidean",
    "PointTransport",
    "Summary",
    "SummaryModel",
    "TransportKernel",
    "standard",
    "titles",
]


def __dir__() -> list[str]:
    return sorted(__all__)
