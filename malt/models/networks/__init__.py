"""Networks of dense layers: their gradients, and optimizers of a layer. NumPy is all they need.

`malt.models.networks.sparse`, `touched`: the same of sparse rows, compiled.

network = Network(weights)
optimizers = [OPTIMIZERS["adam"].make(layer) for layer in weights]
network.inputs(rows)[:] = x
network.forward(rows)
for layer in network.backward(labels):
    optimizers[layer].update(network.gradients[layer], step)
"""

from malt.models.networks.learner import (
    EVALUATED_ROWS,
    USUAL,
    Data,
    LayersLearner,
    Learner,
    exchanges_of,
    logits,
    too_large,
)
from malt.models.networks.network import (
    Labels,
    Network,
    Weights,
    cross_entropy,
    first_weights,
    logistic,
    softmax,
)
from malt.models.networks.optimizer import OPTIMIZERS, Kind, Optimizer, step_at

__all__ = [
    "EVALUATED_ROWS",
    "OPTIMIZERS",
    "USUAL",
    "Data",
    "Kind",
    "Labels",
    "LayersLearner",
    "Learner",
    "Network",
    "Optimizer",
    "Weights",
    "cross_entropy",
    "exchanges_of",
    "first_weights",
    "logistic",
    "logits",
    "softmax",
    "step_at",
    "too_large",
]
