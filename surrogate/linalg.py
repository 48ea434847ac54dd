"""The little linear algebra that has to be robust: Cholesky with a jitter ladder, triangular solves.

scipy.linalg costs a quarter of a second to import, so it is imported where data are fitted; the prior alone
(`race plan` with no records) needs only numpy.
"""

from __future__ import annotations

import numpy as np

from race.errors import CannotDo
from surrogate.points import FloatArray

_JITTERS = (0.0, 1e-10, 1e-8, 1e-6, 1e-4)


def cholesky(matrix: FloatArray) -> FloatArray:
    """Lower Cholesky factor; the diagonal is raised by up to 1e-4 of its mean if it has to be.

    Raises
    ------
    CannotDo
        The matrix is not a covariance even then (it holds NaN, or the records span more than floats can).
    """
    scale = float(np.mean(np.diag(matrix))) if len(matrix) else 1.0
    for jitter in _JITTERS:
        lifted = matrix if jitter == 0 else matrix + jitter * scale * np.eye(len(matrix))
        try:
            factor = np.asarray(np.linalg.cholesky(lifted), dtype=np.float64)
        except np.linalg.LinAlgError:
            continue
        if np.isfinite(factor).all():
            return factor
    raise CannotDo(
        "records: their covariance cannot be factorised, found values too extreme for floating point; "
        "leave out the records farthest from the others"
    )


def solve_lower(factor: FloatArray, right: FloatArray) -> FloatArray:
    """Solve L x = right."""
    from scipy.linalg import solve_triangular

    return np.asarray(solve_triangular(factor, right, lower=True, check_finite=False))


def solve_upper(factor: FloatArray, right: FloatArray) -> FloatArray:
    """Solve L' x = right for the lower factor L."""
    from scipy.linalg import solve_triangular

    return np.asarray(solve_triangular(factor, right, lower=True, trans="T", check_finite=False))
