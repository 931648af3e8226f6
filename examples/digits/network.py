"""A small neural network whose training is bitwise reproducible on every machine.

A floating-point sum depends on the order of its terms, which differs between processors in a matrix
product. Every operand of a product is therefore first rounded to a grid of binary fractions, coarse
enough that the sum is exact in 53 bits and its order does not matter. The exponential function comes
from a table computed in decimal arithmetic.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

WEIGHT_BITS = 24
ACTIVATION_BITS = 8
LOGIT_BITS = 6
GRADIENT_BITS = 16
MAX_LOGIT = 16

EXPONENTIALS: Array = np.array(
    [
        float((Decimal(-index) / 2**LOGIT_BITS).exp().quantize(Decimal("1e-12")))
        for index in range(MAX_LOGIT * 2**LOGIT_BITS + 1)
    ]
)


def on_grid(values: Array, bits: int) -> Array:
    """Round to multiples of 2^-bits."""
    return np.rint(values * 2.0**bits) / 2.0**bits


def softmax(logits: Array) -> Array:
    """Probabilities of each row of logits, on a grid of 2^-16."""
    below_highest = np.minimum(logits.max(axis=1, keepdims=True) - logits, MAX_LOGIT)
    weights = EXPONENTIALS[np.rint(below_highest * 2**LOGIT_BITS).astype(np.int64)]
    total = on_grid(weights, 32).sum(axis=1, keepdims=True)
    return on_grid(weights / total, GRADIENT_BITS)


class Network:
    """One hidden layer with rectified units and a softmax, trained by stochastic gradient descent with momentum.

    Args:
        inputs: Features of an example, each a multiple of 1/16 from 0 to 1.
        hidden: Hidden units.
        classes: Classes.
        random: Random generator for the initial weights.
    """

    def __init__(self, inputs: int, hidden: int, classes: int, random: np.random.Generator) -> None:
        self.weights = [self._initial(inputs, hidden, random), self._initial(hidden, classes, random)]
        self.biases = [np.zeros(hidden), np.zeros(classes)]
        self._velocities = [np.zeros_like(values) for values in (*self.weights, *self.biases)]

    @staticmethod
    def _initial(rows: int, columns: int, random: np.random.Generator) -> Array:
        # Random integers are equal on every machine; a normal distribution would use the machine's logarithm.
        drawn = random.integers(-(2**15), 2**15, size=(rows, columns)).astype(np.float64) / 2**15
        return on_grid(drawn * np.sqrt(3.0 / rows), WEIGHT_BITS)

    def _hidden(self, examples: Array) -> Array:
        return on_grid(np.maximum(examples @ self.weights[0] + self.biases[0], 0.0), ACTIVATION_BITS)

    def accuracy(self, examples: Array, labels: NDArray[np.int64]) -> float:
        """Fraction of the examples that the network classifies correctly."""
        logits = self._hidden(examples) @ self.weights[1] + self.biases[1]
        return float(np.count_nonzero(logits.argmax(axis=1) == labels)) / len(labels)

    def train_step(self, examples: Array, labels: NDArray[np.int64], learning_rate: float, momentum: float) -> None:
        """One step of gradient descent on one batch."""
        hidden = self._hidden(examples)
        logits = on_grid(hidden @ self.weights[1] + self.biases[1], LOGIT_BITS)
        at_logits = softmax(logits)
        at_logits[np.arange(len(labels)), labels] -= 1.0
        at_hidden = on_grid(at_logits @ self.weights[1].T, GRADIENT_BITS) * (hidden > 0)
        gradients = (examples.T @ at_hidden, hidden.T @ at_logits, at_hidden.sum(axis=0), at_logits.sum(axis=0))
        parameters = (*self.weights, *self.biases)
        for values, velocity, gradient in zip(parameters, self._velocities, gradients, strict=True):
            velocity[:] = momentum * velocity - learning_rate / len(labels) * gradient
            values[:] = on_grid(values + velocity, WEIGHT_BITS)
