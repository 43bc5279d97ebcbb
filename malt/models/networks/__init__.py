"""Networks of dense layers: their gradients, and optimizers of a layer. NumPy is all they need. *Local.*

`malt.models.networks.sparse`: the same of sparse rows. It needs numba.

network = Network(weights)
optimizers = [OPTIMIZERS["adam"].make(layer) for layer in weights]
network.inputs(rows)[:] = x
network.forward(rows)
for layer in network.backward(labels):
    optimizers[layer].update(network.gradients[layer], step)
"""

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
    "OPTIMIZERS",
    "Kind",
    "Labels",
    "Network",
    "Optimizer",
    "Weights",
    "cross_entropy",
    "first_weights",
    "logistic",
    "softmax",
    "step_at",
]
