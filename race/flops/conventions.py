"""How others count, by name, so that published numbers can be compared with ours.

Each formula estimates the FLOPs of one *update* (forward and backward) over sequences of given lengths, as
its authors publish it; code and wording here are our own. None of them knows what a LoRA update skips
(prime-rl's excepted), what a forward alone, a generation or a reward model costs, or where logits are
computed. ``Formula.forward`` is the customary third of the update (2 N D out of 6 N D).

    N, D      parameters, tokens                     s     length of one sequence
    L, h, f   layers, hidden, MLP width              H, K  heads, KV heads
    d, V      head dim, vocabulary                   A     parameters of the adapter

To see them next to the exact count::

    >>> arch = Architecture.from_config("qwen2.5-1.5b")
    >>> exact = update_flops(arch, [1000], lora=LoraSpec(16))
    >>> for name, formula in FORMULAS.items():
    ...     print(name, formula.update(arch, [1000], lora=LoraSpec(16)).total / exact.total)
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from race.errors import InvalidInput
from race.flops.architecture import Architecture, check_architecture
from race.flops.checks import check_lengths
from race.flops.count import Convention, FlopCount
from race.flops.lora import LoraSpec
from race.flops.shapes import attention_linears, expert_linears, mlp_linears

_Parts = Callable[[Architecture, list[int], LoraSpec | None], dict[str, int]]


@dataclass(frozen=True)
class Formula:
    """One published way of counting an update.

    Attributes
    ----------
    name
        Key in ``FORMULAS``.
    source
        Paper or repository, file, release and commit it was read from.
    expression
        FLOPs of one update in the notation of this module.
    deviates
        What it counts that is not executed, or leaves out.
    convention
        Travels with every number, so that it cannot be added to one of ours.
    """

    name: str
    source: str
    expression: str
    deviates: str
    convention: Convention
    _parts: _Parts

    def update(
        self, arch: Architecture, lengths: Sequence[int], *, lora: LoraSpec | None = None
    ) -> FlopCount:
        """The estimate for one forward and backward over sequences of these lengths."""
        parts = self._parts(check_architecture(arch), check_lengths("lengths", lengths), lora)
        return FlopCount({f"update.{kind}": flops for kind, flops in parts.items()}, self.convention)

    def forward(self, arch: Architecture, lengths: Sequence[int]) -> FlopCount:
        """A third of a full ``update``: how these formulas are stretched to forwards and generation."""
        parts = self._parts(check_architecture(arch), check_lengths("lengths", lengths), None)
        return FlopCount({f"forward.{kind}": flops // 3 for kind, flops in parts.items()}, self.convention)


def formula(name: str) -> Formula:
    """The formula called ``name``; ``InvalidInput`` with the nearest names otherwise."""
    if name in FORMULAS:
        return FORMULAS[name]
    near = difflib.get_close_matches(str(name), FORMULAS, n=3, cutoff=0.3) or list(FORMULAS)
    raise InvalidInput(f"convention: {name!r} is unknown; did you mean {', '.join(near)}")


def _layer_weights(arch: Architecture) -> int:
    """Matmul weights that a token passes in all layers: projections and (active) MLPs with routers."""
    weights = 0
    for sparse in arch.sparse:
        linears = {**attention_linears(arch), **(expert_linears(arch) if sparse else mlp_linears(arch))}
        for name, linear in linears.items():
            times = arch.moe.top_k if arch.moe is not None and name.startswith("expert.") else 1
            weights += linear.n_in * linear.n_out * times
    return weights


def _dense_only(arch: Architecture, name: str) -> None:
    if any(arch.sparse):
        raise InvalidInput(f"arch: {arch.name} has sparse layers, for which {name} has no formula")


def _palm(arch: Architecture, lengths: list[int], lora: LoraSpec | None) -> dict[str, int]:
    width = arch.heads * arch.head_dim
    return {
        "parameters": 6 * arch.params() * sum(lengths),
        "attention": 12 * arch.layers * width * sum(s * s for s in lengths),
    }


def _six_nd_total(arch: Architecture, lengths: list[int], lora: LoraSpec | None) -> dict[str, int]:
    return {"parameters": 6 * arch.params() * sum(lengths)}


def _six_nd_non_embedding(arch: Architecture, lengths: list[int], lora: LoraSpec | None) -> dict[str, int]:
    return {"parameters": 6 * arch.count_params().non_embedding * sum(lengths)}


def _total_flos(arch: Architecture, lengths: list[int], lora: LoraSpec | None) -> dict[str, int]:
    adapter = arch.count_params(lora).trainable if lora is not None else 0
    return {"parameters": 6 * (arch.count_params().non_embedding + adapter) * sum(lengths)}


def _verl_qwen2(arch: Architecture, lengths: list[int], lora: LoraSpec | None) -> dict[str, int]:
    older = _verl_qwen2_0_7(arch, lengths, lora)
    return {**older, "attention": older["attention"] // 2}


def _verl_qwen2_0_7(arch: Architecture, lengths: list[int], lora: LoraSpec | None) -> dict[str, int]:
    _dense_only(arch, "verl-qwen2")
    weights = _layer_weights(arch) + 2 * arch.vocab * arch.hidden
    width = arch.heads * arch.head_dim
    return {
        "parameters": 6 * weights * sum(lengths),
        "attention": 12 * arch.layers * width * sum(s * s for s in lengths),
    }


def _nemo_rl_qwen2(arch: Architecture, lengths: list[int], lora: LoraSpec | None) -> dict[str, int]:
    _dense_only(arch, "nemo-rl-qwen2")
    per_layer = 4 * arch.hidden**2 + 3 * arch.hidden * arch.intermediate
    return {
        "parameters": 6 * (arch.layers * per_layer + arch.hidden * arch.vocab) * sum(lengths),
        "attention": 6 * arch.layers * arch.hidden * sum(s * s for s in lengths),
    }


def _prime_rl(arch: Architecture, lengths: list[int], lora: LoraSpec | None) -> dict[str, int]:
    weights = _layer_weights(arch) + arch.vocab * arch.hidden
    width = arch.heads * (arch.hidden // arch.heads)
    parts = {
        "parameters": (6 if lora is None else 4) * weights * sum(lengths),
        "attention": 12 * arch.layers * width * sum(s * s for s in lengths),
    }
    if lora is not None:
        parts["lora"] = 6 * arch.count_params(lora).trainable * sum(lengths)
    return parts


def _trl(arch: Architecture, lengths: list[int], lora: LoraSpec | None) -> dict[str, int]:
    head = 0 if arch.tied else arch.vocab * arch.hidden
    weights = _layer_weights(arch) + arch.vocab * arch.hidden + head
    width = arch.heads * arch.head_dim
    return {
        "parameters": 6 * weights * sum(lengths),
        "attention": 12 * arch.layers * width * sum(s * s for s in lengths),
    }


_FORMULAS = (
    Formula(
        "palm",
        "Chowdhery et al. 2022 (PaLM, arXiv 2204.02311), appendix B; also nanoGPT and torchtitan",
        "sum over sequences of s (6 N + 12 L H d s)",
        "attention not halved for causality; an untied embedding look-up is charged as a matmul; no LoRA",
        Convention("palm", "full", "in N", "in N, every position", "not counted", "not counted"),
        _palm,
    ),
    Formula(
        "6nd",
        "Kaplan et al. 2020 (arXiv 2001.08361) and Hoffmann et al. 2022 (arXiv 2203.15556), with N all parameters",
        "6 N D",
        "no attention; an untied embedding look-up is charged as a matmul; no LoRA",
        Convention("6nd", "not counted", "in N", "in N, every position", "not counted", "not counted"),
        _six_nd_total,
    ),
    Formula(
        "6nd-non-embedding",
        "Kaplan et al. 2020 (arXiv 2001.08361), with N less the token embedding",
        "6 (N - V h) D",
        "no attention; a tied head is lost with the embedding; no LoRA",
        Convention(
            "6nd-non-embedding", "not counted", "left out", "only if untied", "not counted", "not counted"
        ),
        _six_nd_non_embedding,
    ),
    Formula(
        "transformers-total-flos",
        "huggingface/transformers 5.19.0, src/transformers/trainer.py, Trainer.floating_point_ops (total_flos)",
        "6 (N - V h + A) D",
        "as 6nd-non-embedding, plus the adapter; logs 0.0 where batches carry no input_ids (TRL's GRPO)",
        Convention(
            "transformers-total-flos",
            "not counted",
            "left out",
            "only if untied",
            "not counted",
            "not counted",
        ),
        _total_flos,
    ),
    Formula(
        "verl-qwen2",
        "volcengine/verl after v0.7.0, verl/utils/flops_counter.py at b178a3cd5, _estimate_qwen2_flops",
        "6 (L (2 h d (H + K) + 3 h f) + 2 V h) D + 6 L H d sum s^2",
        "charges the embedding look-up as a second head; no LoRA",
        Convention(
            "verl-qwen2", "causal, s^2 / 2", "charged as a matmul", "every position", "not counted", "0"
        ),
        _verl_qwen2,
    ),
    Formula(
        "verl-qwen2-0.7.0",
        "volcengine/verl v0.7.0, verl/utils/flops_counter.py at f9c855f7c, _estimate_qwen2_flops",
        "6 (L (2 h d (H + K) + 3 h f) + 2 V h) D + 12 L H d sum s^2",
        "as verl-qwen2, and attention is not halved for causality",
        Convention("verl-qwen2-0.7.0", "full", "charged as a matmul", "every position", "not counted", "0"),
        _verl_qwen2_0_7,
    ),
    Formula(
        "nemo-rl-qwen2",
        "NVIDIA-NeMo/RL v0.7.0, nemo_rl/utils/flops_formulas.py at 7ea279abf, qwen2",
        "6 (L (4 h^2 + 3 h f) + V h) D + 6 L h sum s^2",
        "charges K and V at full width, ignoring grouped KV heads, and takes H d = h; no LoRA",
        Convention("nemo-rl-qwen2", "causal, s^2 / 2", "look-up, 0", "every position", "not counted", "0"),
        _nemo_rl_qwen2,
    ),
    Formula(
        "prime-rl",
        "PrimeIntellect-ai/prime-rl v0.8.0, src/prime_rl/trainer/perf.py at 559b44772, PerfCounter",
        "full: 6 M D + 12 L h sum s^2; LoRA: (4 M + 6 A) D + 12 L h sum s^2; M: matmul weights, head included",
        "attention not halved for causality and of width h; the first LoRA layer is charged an input gradient",
        Convention("prime-rl", "full", "look-up, 0", "every position", "not counted", "0"),
        _prime_rl,
    ),
    Formula(
        "trl",
        "huggingface/trl 1.9.0, trl/trainer/utils.py at f2cd57710, compute_flops_per_token",
        "6 (L (2 h d (H + K) + 3 h f) + V h [+ V h if untied]) D + 12 L H d sum s^2",
        "attention not halved for causality; with an untied head the look-up is charged as a matmul; no LoRA; "
        "sequence length is the context it was configured with, here each sequence's own",
        Convention("trl", "full", "charged if untied", "every position", "not counted", "0"),
        _trl,
    ),
)

#: Every formula by name.
FORMULAS: Mapping[str, Formula] = {formula.name: formula for formula in _FORMULAS}
