from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import Tensor

from real_runs.grpo.loss import LossSpec, grpo_loss

LOSSES = ["grpo", "dapo", "dr-grpo"]


def spec(mask: Tensor, **changes: object) -> LossSpec:
    values = {
        "loss": "dapo", "ratio_level": "token", "clip_low": 0.2, "clip_high": 0.28, "beta": 0.0, "unbiased_kl": False,
        "max_completion_tokens": 7, "samples": mask.shape[0], "tokens": int(mask.sum()),
    }
    return LossSpec(**{**values, **changes})  # type: ignore[arg-type]


def batch(rows: int = 5, width: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    logp = -torch.rand(rows, width, generator=generator, dtype=torch.float64) * 3
    lengths = torch.randint(1, width + 1, (rows,), generator=generator)
    mask = (torch.arange(width)[None] < lengths[:, None]).double()
    advantages = torch.randn(rows, generator=generator, dtype=torch.float64)
    return (logp * mask).requires_grad_(), mask, advantages


def test_first_pass_gradient_is_the_policy_gradient() -> None:
    logp, mask, advantages = batch()
    parts = grpo_loss(logp, mask, advantages, spec(mask))
    parts.total.backward()
    assert torch.allclose(logp.grad, -advantages[:, None] * mask / mask.sum())
    assert parts.total.item() == pytest.approx(float(-(advantages[:, None] * mask).sum() / mask.sum()))
    assert int(parts.clipped) == 0


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_micro_batches_add_up_to_the_whole(loss: str, level: str) -> None:
    logp, mask, advantages = batch()
    old = (logp.detach() + 0.3 * torch.randn(logp.shape, dtype=torch.float64)) * mask
    reference = (logp.detach() - 0.2) * mask
    whole = spec(mask, loss=loss, ratio_level=level, beta=0.1)
    total = grpo_loss(logp, mask, advantages, whole, old=old, reference=reference).total
    pieces = [
        grpo_loss(logp[i], mask[i], advantages[i], whole, old=old[i], reference=reference[i]).total
        for i in (slice(0, 2), slice(2, 3), slice(3, 5))
    ]
    assert total.item() == pytest.approx(sum(p.item() for p in pieces), abs=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_padding_does_not_matter(loss: str) -> None:
    logp, mask, advantages = batch()
    s = spec(mask, loss=loss)
    padded_logp = torch.cat([logp, torch.full((5, 3), -9.0, dtype=torch.float64)], 1)
    padded_mask = torch.cat([mask, torch.zeros(5, 3, dtype=torch.float64)], 1)
    a = grpo_loss(logp, mask, advantages, s).total
    b = grpo_loss(padded_logp, padded_mask, advantages, s).total
    assert a.item() == pytest.approx(b.item(), abs=1e-12)


@pytest.mark.parametrize(
    ("advantage", "shift", "moves"),
    [(1.0, 0.5, False), (1.0, -0.5, True), (-1.0, 0.5, True), (-1.0, -0.5, False), (1.0, 0.26, False),
     (1.0, 0.2, True)],
)
def test_clipping_stops_the_gradient_only_where_it_pays(advantage: float, shift: float, moves: bool) -> None:
    # Clip-higher: a ratio of e^0.2 = 1.22 lies inside [0.8, 1.28], e^0.26 = 1.30 does not.
    logp = torch.full((1, 1), -1.0, dtype=torch.float64, requires_grad=True)
    mask = torch.ones(1, 1, dtype=torch.float64)
    parts = grpo_loss(logp, mask, torch.tensor([advantage]), spec(mask), old=logp.detach() - shift)
    parts.total.backward()
    assert bool(logp.grad.abs().sum() > 0) is moves
    assert int(parts.clipped) == (0 if moves else 1)


def test_k3_is_non_negative_zero_at_equality_and_pulls_towards_the_reference() -> None:
    logp, mask, _ = batch()
    none = torch.zeros(5, dtype=torch.float64)
    s = spec(mask, beta=0.5)
    same = grpo_loss(logp, mask, none, s, reference=logp.detach())
    assert same.kl.item() == 0
    apart = grpo_loss(logp, mask, none, s, reference=logp.detach() + mask)
    assert float(apart.kl) > 0
    apart.total.backward()
    assert (logp.grad[mask > 0] < 0).all()  # reference is likelier, so descending raises logp


def test_unbiased_kl_has_the_gradient_of_the_reverse_kl() -> None:
    # One token, three choices: the expected gradient over the policy's own samples is that of KL(policy || reference).
    logits = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64, requires_grad=True)
    reference = torch.log_softmax(torch.tensor([1.0, 0.1, -0.4], dtype=torch.float64), -1)
    mask = torch.ones(1, 1, dtype=torch.float64)
    none = torch.zeros(1, dtype=torch.float64)

    def expected(unbiased: bool) -> Tensor:
        total = torch.zeros(3, dtype=torch.float64)
        for token in range(3):
            logp = torch.log_softmax(logits, -1)[token].view(1, 1)
            s = spec(mask, beta=1.0, unbiased_kl=unbiased)
            loss = grpo_loss(logp, mask, none, s, reference=reference[token].view(1, 1)).total
            (grad,) = torch.autograd.grad(loss, logits)
            total += logp.exp().item() * grad
        return total

    policy = torch.log_softmax(logits, -1)
    (exact,) = torch.autograd.grad((policy.exp() * (policy - reference)).sum(), logits)
    assert torch.allclose(expected(True), exact, atol=1e-12)
    assert not torch.allclose(expected(False), exact, atol=1e-3)


def test_sequence_ratio_is_the_geometric_mean() -> None:
    logp = torch.tensor([[-1.0, -2.0]], dtype=torch.float64, requires_grad=True)
    mask = torch.ones(1, 2, dtype=torch.float64)
    old = torch.tensor([[-1.1, -1.9]], dtype=torch.float64)
    s = spec(mask, loss="grpo", ratio_level="sequence")
    assert grpo_loss(logp, mask, torch.tensor([2.0]), s, old=old).total.item() == pytest.approx(-2.0)
    old = torch.tensor([[-1.1, -2.1]], dtype=torch.float64)
    assert grpo_loss(logp, mask, torch.tensor([2.0]), s, old=old).total.item() == pytest.approx(-2 * math.exp(0.1))


def test_importance_weights_scale_the_policy_term_only() -> None:
    logp, mask, advantages = batch()
    s = spec(mask, beta=0.1)
    reference = logp.detach() - 0.3
    plain = grpo_loss(logp, mask, advantages, s, reference=reference).total
    without_kl = grpo_loss(logp, mask, advantages, dataclasses.replace(s, beta=0.0)).total
    weighted = grpo_loss(logp, mask, advantages, s, reference=reference, weights=torch.full_like(logp, 0.5)).total
    assert float(weighted) == pytest.approx(float(plain - 0.5 * without_kl))
