"""The surrogate: a Gaussian process over simulator worlds, and the questions asked of it.

`Surrogate.fit` turns pilot records into a posterior over the response surface; `surrogate.optimum` reads the
best model, update fraction and regime off its joint draws. Saved surrogates are plain data (`surrogate.files`).
"""

from surrogate.model import Prediction, Surrogate

__all__ = ["Prediction", "Surrogate"]
