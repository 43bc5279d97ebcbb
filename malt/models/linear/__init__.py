"""Linear models by stochastic gradient descent or dual coordinate ascent: losses, step sizes, compiled kernels.

    objective(w, b) = mean over i of loss(y_i (x_i . w + b)) + l2/2 |w|^2          (the intercept b is not shrunk)

`params` is the array that is trained and exchanged: float32, C-contiguous and writable. It holds the n_features
weights, then the intercept, which stays 0 in a model without one. `t` counts the examples that *this* rank has trained
on, in all epochs. All functions are *Local*, but for learners, which train on all ranks.
"""

from malt.models.linear.ascent import Ascent, has_dual
from malt.models.linear.compiled import (
    LOSSES,
    SOFTMAX,
    Examples,
    Order,
    Params,
    add_gradient,
    add_gradient_of_classes,
    compile_kernels,
    dloss_of,
    loss_of,
)
from malt.models.linear.descent import (
    GRADIENT_SHARE,
    KINDS,
    TAIL,
    Classes,
    blend,
    gradient_step,
    one_against_rest,
    step_size,
    subgradient,
    train,
    train_classes,
)
from malt.models.linear.learners import DEPTH, Learner, ModelLearner, SparseModelLearner, learner
from malt.models.linear.minimized import Found, Objective
from malt.models.linear.problem import INTERCEPT_RATE, Problem, accuracy, objective, penalty, totals
from malt.models.linear.rows import (
    BLOCK_ROWS,
    Block,
    Touched,
    blocks,
    examples,
    narrow_block,
    narrowed,
    part,
    readonly,
    visiting_order,
)
from malt.models.linear.steps import MAX_TRIAL_RANKS, STEP_SAMPLE, first_step
from malt.models.linear.weights import NUMBERS, Replicated, Sharded, Weights, weights_of

__all__ = [
    "BLOCK_ROWS",
    "DEPTH",
    "GRADIENT_SHARE",
    "INTERCEPT_RATE",
    "KINDS",
    "LOSSES",
    "MAX_TRIAL_RANKS",
    "NUMBERS",
    "SOFTMAX",
    "STEP_SAMPLE",
    "TAIL",
    "Ascent",
    "Block",
    "Classes",
    "Examples",
    "Found",
    "Learner",
    "ModelLearner",
    "Objective",
    "Order",
    "Params",
    "Problem",
    "Replicated",
    "Sharded",
    "SparseModelLearner",
    "Touched",
    "Weights",
    "accuracy",
    "add_gradient",
    "add_gradient_of_classes",
    "blend",
    "blocks",
    "compile_kernels",
    "dloss_of",
    "examples",
    "first_step",
    "gradient_step",
    "has_dual",
    "learner",
    "loss_of",
    "narrow_block",
    "narrowed",
    "objective",
    "one_against_rest",
    "part",
    "penalty",
    "readonly",
    "step_size",
    "subgradient",
    "totals",
    "train",
    "train_classes",
    "visiting_order",
    "weights_of",
]
