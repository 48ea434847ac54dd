"""Problems of mixed difficulty: a finite mixture of difficulty classes, summed over.

The classes are the model, not a quadrature of one: evenly spaced in standard deviations. Gauss-Hermite nodes
would lie 3.5 logits apart at the calibrated spread, and a mean of sigmoids that far apart is a staircase.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

CLASSES = np.linspace(-2.4, 2.4, 9)
WEIGHTS = np.exp(-0.5 * CLASSES**2) / np.exp(-0.5 * CLASSES**2).sum()


def sigmoid(x: FloatArray) -> FloatArray:
    """1 / (1 + exp(-x)) without overflow."""
    out: FloatArray = 1 / (1 + np.exp(np.minimum(-x, 500.0)))
    return out


def classes(spread: FloatArray) -> FloatArray:
    """Difficulty of each class; ``spread`` (W, 1) gives shape (classes, W, 1)."""
    out: FloatArray = spread * CLASSES[:, None, None]
    return out


def average(values: FloatArray) -> FloatArray:
    """Weighted mean over the leading axis of classes."""
    # A plain matrix-vector product: tensordot spends longer on its bookkeeping than on one pilot's numbers.
    out: FloatArray = WEIGHTS @ values.reshape(CLASSES.size, -1)
    return out.reshape(values.shape[1:])


def mean_success(theta: FloatArray, spread: FloatArray) -> FloatArray:
    """Mean of sigmoid(theta - delta) over classes; ``theta`` (W, n), ``spread`` (W, 1)."""
    return average(sigmoid(theta - classes(spread)))
