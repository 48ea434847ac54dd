"""The pieces of a decoder layer with gradients written out.

Notation: M tokens (all sequences laid end to end), H hidden, D half of a head. Frozen weights get no gradient: callers
use these only where norms and base weights are frozen.

    norm      y = x r w,  r = (mean(x^2) + eps)^(-1/2)       dx = r (g w - x r * mean(g w * x r))
    rotate    (a, b) -> (a cos - b sin, b cos + a sin)         its gradient is the rotation by the opposite angle
    gated     silu(g) * u
    project   y_i = x W_i^T + s_i (x A_i^T) B_i^T              several projections of one input at once
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from real_runs.lean.weights import Projection, add_product


class _Norm(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        scale = length.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        unit = x * scale
        ctx.save_for_backward(unit, scale, weight)
        return unit * weight

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        unit, scale, weight = ctx.saved_tensors
        g = grads[0] * weight
        along = (g * unit).mean(-1, keepdim=True)
        return g.addcmul_(unit, along, value=-1).mul_(scale), None, None


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm (Zhang and Sennrich 2019); x (..., H)."""
    result: Tensor = _Norm.apply(x, weight, eps)
    return result


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate pairs (x_i, x_{i+D}) of the last dimension, of size 2 D.

    ``cos`` and ``sin`` are `weights.rotary_tables`, broadcast over heads. Whole rows are passed over twice, which is
    quicker than four passes over halves of them.
    """
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


class _Rotate(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return rotated(x, cos, sin)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        return rotated(grads[0], cos, -sin), None, None


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding (Su et al. 2021), differentiable."""
    result: Tensor = _Rotate.apply(x, cos, sin)
    return result


class _Gated(Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return F.silu(gate).mul_(up)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        gate, up = ctx.saved_tensors
        d_up = F.silu(gate).mul_(grads[0])
        return torch.ops.aten.silu_backward(grads[0] * up, gate), d_up


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """SwiGLU's gate (Shazeer 2020), differentiable."""
    result: Tensor = _Gated.apply(gate, up)
    return result


class _Project(Function):
    """Adapted projections of one input; the adapters' first halves are multiplied in one go.

    Everything of width r lies in memory as (r, M): a narrow product is several times slower the other way round.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, residual: Tensor | None, projections: tuple[Projection, ...], *adapters: Tensor
    ) -> tuple[Tensor, ...]:
        downs, ups = adapters[::2], adapters[1::2]
        inner = _below(downs) @ x.t()
        outputs, row = [], 0
        for projection, up in zip(projections, ups, strict=True):
            start = residual if residual is not None else projection.bias
            wide = F.linear(x, projection.weight) if start is None else torch.addmm(start, x, projection.weight.t())
            rank = up.shape[1]
            outputs.append(add_product(wide, inner[row : row + rank].t(), up.t(), projection.scale))
            row += rank
        ctx.save_for_backward(x, inner, *adapters)
        ctx.projections = projections
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        x, inner, *adapters = ctx.saved_tensors
        downs, ups = adapters[::2], adapters[1::2]
        d_adapters: list[Tensor] = []
        d_inner = torch.empty_like(inner)
        row = 0
        for grad, projection, up in zip(grads, ctx.projections, ups, strict=True):
            part = slice(row, row + up.shape[1])
            torch.mm(up.t(), grad.t(), out=d_inner[part]).mul_(projection.scale)
            d_adapters.append((inner[part] @ grad).mul_(projection.scale).t())
            row = part.stop
        d_downs = (d_inner @ x).split([d.shape[0] for d in downs])
        d_x = None
        if ctx.needs_input_grad[0]:
            for grad, projection in zip(grads, ctx.projections, strict=True):
                d_x = grad @ projection.weight if d_x is None else add_product(d_x, grad, projection.weight)
            d_x = add_product(d_x, d_inner.t(), _below(downs))  # type: ignore[arg-type]  # set by the loop above
        d_residual = grads[0] if ctx.needs_input_grad[1] else None
        pairs = [t for pair in zip(d_downs, d_adapters, strict=True) for t in pair]
        return d_x, d_residual, None, *pairs


def _below(tensors: Sequence[Tensor]) -> Tensor:
    """Weights of one input, below each other."""
    return tensors[0] if len(tensors) == 1 else torch.cat(list(tensors))


def project(x: Tensor, projections: tuple[Projection, ...], residual: Tensor | None = None) -> tuple[Tensor, ...]:
    """Apply several projections to x (M, H); ``residual`` (M, out) is added when there is only one.

    A biased projection with a residual is not fused.
    """
    if len(projections) > 1 and residual is not None:
        raise ValueError("a residual belongs to a single projection")
    if all(p.a is not None for p in projections) and (residual is None or projections[0].bias is None):
        adapters = [t for p in projections for t in (p.a, p.b)]
        result: tuple[Tensor, ...] = _Project.apply(x, residual, projections, *adapters)
        return result
    outputs = []
    for p in projections:
        y = F.linear(x, p.weight, p.bias)
        if p.a is not None and p.b is not None:
            y = torch.addmm(y, F.linear(x, p.a), p.b.t(), alpha=p.scale)
        outputs.append(y)
    if residual is not None:
        outputs[0] = outputs[0] + residual
    return tuple(outputs)
