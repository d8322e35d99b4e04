"""Networks as ground metrics: gradients agree with autograd, rings are classified, files hold numbers only."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

torch = pytest.importorskip("torch", reason="torch is not installed: `make test-extras` installs it")

from groundmetric import (  # noqa: E402
    Distributions,
    GroundMetric,
    GroundMetricLearner,
    TransportKNeighborsClassifier,
    neural,
    pairwise_distances,
)
from groundmetric._internal.parallel import Threads  # noqa: E402
from groundmetric.datasets import make_rings  # noqa: E402
from groundmetric.learning import EarlyStopping, Mapped, Nearest  # noqa: E402
from groundmetric.learning.objective import Objective  # noqa: E402
from groundmetric.learning.triplets import random_triplets  # noqa: E402
from groundmetric.metrics.base import Cost  # noqa: E402
from groundmetric.neural import DistanceModel, EmbeddingModel, StandardisedModule  # noqa: E402
from groundmetric.transport import solve  # noqa: E402

D, y = make_rings(8, points=6, random_state=0)
CENTRE, SCALE = D.points.mean(axis=0), D.points.std(axis=0)


def network(width=16, out=2, *, dtype=torch.float64, seed=0, inputs=4):
    torch.manual_seed(seed)
    layers = torch.nn.Linear(inputs, width), torch.nn.Tanh(), torch.nn.Linear(width, out)
    return torch.nn.Sequential(*layers).to(dtype)


class Bent(torch.nn.Module):
    """A learned power of the distance between embedded points."""

    def __init__(self, dtype=torch.float64, seed=0):
        super().__init__()
        self.inside = network(dtype=dtype, seed=seed)
        self.power = torch.nn.Parameter(torch.tensor(0.8, dtype=dtype))

    def forward(self, x, y):
        return (torch.sum((self.inside(x) - self.inside(y)) ** 2, dim=1) + 1e-6) ** (self.power / 2)


def model_of(module, cost=Cost.EUCLIDEAN):
    kind = DistanceModel if isinstance(module, Bent) else EmbeddingModel
    return kind(StandardisedModule(module, CENTRE, SCALE), None, cost)


def objective_of(model):
    triplets = random_triplets(y, 2, np.random.RandomState(0))
    pairs = model.pairs(D, triplets.first, triplets.second, threads=Threads(1), memory=1e8, max_pivots=None)
    objective = Objective(triplets, pairs, margin=0.05)
    objective.unit = objective.typical_distance(model.start(None), np.arange(len(triplets)))
    return objective, np.arange(len(triplets))


MODULES = {
    "embedding": (network(), Cost.EUCLIDEAN),
    "one component": (network(out=1), Cost.EUCLIDEAN),
    "manhattan": (network(), Cost.MANHATTAN),
    "squared": (network(), Cost.SQUARED),
    "distance": (Bent(), Cost.EUCLIDEAN),
}
each_module = pytest.mark.parametrize(("module", "cost"), MODULES.values(), ids=MODULES.keys())


def cost_matrix(module, cost, x, z):
    """The costs as torch sees them, with their graph."""
    if isinstance(module, Bent):
        rows, cols = torch.meshgrid(torch.arange(len(x)), torch.arange(len(z)), indexing="ij")
        return module(x[rows.ravel()], z[cols.ravel()]).reshape(len(x), len(z))
    steps = module(x)[:, None] - module(z)[None]
    if cost is Cost.MANHATTAN:
        return steps.abs().sum(dim=2)
    squared = (steps**2).sum(dim=2)
    return squared if cost is Cost.SQUARED else squared.sqrt()


def autograd_loss(module, cost, objective):
    """The mean hinge with plans held fixed, all of it in torch."""
    points = torch.as_tensor((D.points - CENTRE) / SCALE)
    blocks = [points[low:high] for low, high in zip(D.bounds[:-1], D.bounds[1:], strict=True)]
    values = []
    for d, e in zip(objective.pairs.first, objective.pairs.second, strict=True):
        costs = cost_matrix(module, cost, blocks[d], blocks[e])
        plan = solve(costs.detach().numpy())
        values.append((costs[plan.rows, plan.cols] * torch.as_tensor(plan.mass)).sum())
    values = torch.stack(values)
    hinge = values[objective.triplets.near] - values[objective.triplets.far] + objective.margin * objective.unit
    return torch.clamp(hinge, min=0.0).mean() / objective.unit


@each_module
def test_loss_and_gradient_are_those_of_autograd(module, cost):
    model = model_of(module, cost)
    objective, batch = objective_of(model)
    result = objective.evaluate(model.start(None), batch)
    assert 0 < result.active < batch.size
    module.zero_grad()
    loss = autograd_loss(module, cost, objective)
    loss.backward()
    expected = torch.cat([parameter.grad.ravel() for parameter in module.parameters()]).numpy()
    assert result.loss == pytest.approx(loss.item(), rel=1e-9)
    assert_allclose(result.gradient[0], expected, rtol=1e-6, atol=1e-10)


@each_module
def test_the_gradient_is_the_slope_of_the_loss(module, cost):
    model = model_of(module, cost)
    objective, batch = objective_of(model)
    W = model.start(None)
    gradient, step = objective.evaluate(W, batch).gradient, 1e-6
    for entry in range(0, W.size, W.size // 6):
        change = np.zeros_like(W)
        change[0, entry] = step
        high, low = (objective.evaluate(V, batch, gradient=False).loss for V in (W + change, W - change))
        assert gradient[0, entry] == pytest.approx((high - low) / (2 * step), abs=1e-6)


def test_a_two_layer_network_tells_rings_apart_where_a_linear_metric_is_near_chance():
    (X, labels), (fresh, truth) = make_rings(random_state=0), make_rings(random_state=1)
    torch.manual_seed(0)
    layers = torch.nn.Linear(4, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2)
    learned = neural.NeuralGroundMetricLearner(torch.nn.Sequential(*layers), random_state=0).fit(X, labels)
    linear = GroundMetricLearner(random_state=0).fit(X, labels)
    scores = [
        TransportKNeighborsClassifier(metric=metric).fit(X, labels).score(fresh, truth)
        for metric in (learned.metric_, linear.metric_)
    ]
    assert scores[0] >= 0.95
    assert scores[1] <= 0.7


def learner(module=None, **options):
    module = network(dtype=torch.float32) if module is None else module
    return neural.NeuralGroundMetricLearner(module, **{"max_epochs": 3, "random_state": 0, **options})


OPTIONS = [
    {},
    {"cost": "manhattan"},
    {"cost": "squared"},
    {"neighbors": Nearest(refresh=1)},
    {"stopping": EarlyStopping(validation_fraction=0.3)},
    {"penalty": "l2_squared"},
    {"form": Mapped(StandardScaler())},
    {"optimiser": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9)},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: ", ".join(options))
def test_every_option_learns_and_the_same_seed_gives_the_same_bits(options):
    first, repeated = (learner(**options).fit(D, y) for _ in range(2))
    assert first.history_["loss"][-1] < first.history_["loss"][0]
    assert_array_equal(first.transform(D), repeated.transform(D))
    moved = Distributions(first.transform(D), np.repeat(D.names, D.sizes))
    by_hand = pairwise_distances(moved, metric=GroundMetric(np.eye(2), cost=first.cost))
    assert_allclose(pairwise_distances(D, metric=first.metric_), by_hand, rtol=1e-6)


def test_a_module_that_measures_distances_learns():
    learned = learner(Bent(torch.float32), pairwise=True, learning_rate=0.03, max_epochs=6).fit(D, y)
    assert learned.history_["loss"][-1] < learned.history_["loss"][0]
    distances = pairwise_distances(D, metric=learned.metric_)
    x, z = D.points[: D.bounds[1]], D.points[D.bounds[1] : D.bounds[2]]
    assert distances[0, 1] == pytest.approx(solve(learned.metric_.distances(x, z)).value)
    with pytest.raises(TypeError, match="does not embed points"):
        learned.transform(D)


def test_the_module_given_is_not_changed_and_batch_statistics_are_kept():
    layers = (
        torch.nn.Linear(4, 8),
        torch.nn.BatchNorm1d(8),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.2),
        torch.nn.Linear(8, 2),
    )
    module = torch.nn.Sequential(*layers)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    learned = learner(module, stopping=EarlyStopping(validation_fraction=0.3)).fit(D, y)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert not torch.equal(learned.module_[1].running_mean, module[1].running_mean)
    assert_array_equal(learned.transform(D), learned.transform(D))


def test_parameters_clone_and_reach_the_linear_learner():
    original = learner(margin=0.5, target="classes")
    assert clone(original).get_params()["margin"] == 0.5
    assert original.set_params(batch_size=7).batch_size == 7
    assert {"n_components", "init", "metric"}.isdisjoint(original.get_params())
    with pytest.raises(TypeError, match=r"unexpected parameters \['n_components'\]"):
        learner(n_components=3)


@pytest.mark.parametrize("pairwise", [False, True])
def test_files_hold_numbers_only_and_ask_for_the_module(pairwise, tmp_path):
    module = Bent(torch.float32) if pairwise else network(dtype=torch.float32)
    metric = learner(module, pairwise=pairwise).fit(D, y).metric_
    metric.save(tmp_path / "metric")
    fresh = Bent(torch.float32, seed=9) if pairwise else network(dtype=torch.float32, seed=9)
    repeated = neural.load(tmp_path / "metric", fresh)
    assert_array_equal(repeated.distances(D.points[:9]), metric.distances(D.points[:9]))
    with pytest.raises(ValueError, match=r"neural\.load"):
        GroundMetric.load(tmp_path / "metric")
    with pytest.raises(ValueError, match="not built like the one that was saved"):
        neural.load(tmp_path / "metric", network(3))
    GroundMetric(np.eye(2)).save(tmp_path / "linear")
    with pytest.raises(ValueError, match="not the file of a network"):
        neural.load(tmp_path / "linear", module)


class Made(torch.nn.Module):
    """A module that applies a function to its input."""

    def __init__(self, make):
        super().__init__()
        self.weight, self.make = torch.nn.Parameter(torch.ones(1)), make

    def forward(self, *inputs):
        return self.make(self.weight, *inputs)


BAD_EMBEDDINGS = {
    "one dimension": (lambda w, x: w * x[:, 0], r"module made shape \(1,\) of 1 points"),
    "fewer rows": (lambda w, x: w * x[:0], r"module made shape \(0, 4\) of 1 points"),
    "no tensor": (lambda w, x: 3.0, "module made a float"),
    "NaN": (lambda w, x: w * x / 0.0 * 0.0, "module gave NaN or infinity"),
}
BAD_DISTANCES = {
    "a matrix": (lambda w, x, z: w * x, r"module made shape \(\d+, 4\) of \d+ pairs of points"),
    "negative": (lambda w, x, z: w * (x * z).sum(dim=1), "negative distance"),
    "one way": (lambda w, x, z: w * torch.relu(x - z).sum(dim=1), "must be symmetric"),
    "NaN": (lambda w, x, z: w * (x - z).sum(dim=1) * torch.nan, "NaN or infinity"),
}


@pytest.mark.parametrize(("make", "message"), BAD_EMBEDDINGS.values(), ids=BAD_EMBEDDINGS.keys())
def test_bad_embeddings_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        learner(Made(make)).fit(D, y)


@pytest.mark.parametrize(("make", "message"), BAD_DISTANCES.values(), ids=BAD_DISTANCES.keys())
def test_bad_distances_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        learner(Made(make), pairwise=True).fit(D, y)


def test_what_cannot_be_learned_is_refused():
    with pytest.raises(TypeError, match=r"expected a torch\.nn\.Module"):
        learner(torch.nn.Linear).fit(D, y)
    with pytest.raises(ValueError, match="no parameters that could be learned"):
        learner(torch.nn.Identity()).fit(D, y)
    with pytest.raises(ValueError, match="needs an embedding"):
        learner(Bent(torch.float32), pairwise=True, neighbors="nearest").fit(D, y)
    with pytest.raises(ValueError, match="the module itself is the cost"):
        learner(Bent(torch.float32), pairwise=True, cost="squared").fit(D, y)
    with pytest.raises(ValueError, match="let the module map the points itself"):
        learner(Bent(torch.float32), pairwise=True, form=Mapped(StandardScaler())).fit(D, y)


def test_a_loss_that_explodes_says_so():
    with pytest.raises(ValueError, match="lower learning_rate"):
        learner(optimiser=lambda parameters: torch.optim.SGD(parameters, lr=1e38), max_epochs=20).fit(D, y)
