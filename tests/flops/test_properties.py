"""Laws the counts obey for any shape."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from shapes import adapters, architectures, attentions, cases, lengths

from race.flops import (
    Architecture,
    FlopCount,
    LoraSpec,
    forward_flops,
    generate_flops,
    update_flops,
)

Case = tuple[Architecture, LoraSpec | None]
settings.register_profile("flops", deadline=None, max_examples=60)
settings.load_profile("flops")


def attention_of(count: FlopCount) -> int:
    return count.by_kind().get("attention", 0)


@given(cases(), st.integers(1, 400), st.integers(1, 400))
def test_prefill_and_decode_attend_like_one_forward(case: Case, prompt: int, completion: int) -> None:
    """Causal: reading p tokens and feeding c - 1 back scores the pairs of one forward over p + c - 1."""
    arch, lora = case
    generated = generate_flops(arch, [prompt], [completion], lora=lora)
    forward = forward_flops(arch, [prompt + completion - 1], logits=completion, lora=lora)
    assert attention_of(generated) == attention_of(forward)
    assert generated.total == forward.total


@given(cases(), lengths, lengths, attentions)
def test_ragged_batches_add_up(case: Case, first: list[int], second: list[int], attention: str) -> None:
    arch, lora = case
    for count in (forward_flops, update_flops):
        whole = count(arch, first + second, lora=lora, attention=attention)
        assert whole == count(arch, first, lora=lora, attention=attention) + count(
            arch, second, lora=lora, attention=attention
        )
        assert whole == sum(count(arch, [n], lora=lora, attention=attention) for n in first + second)


@given(cases(), st.integers(1, 500), st.integers(0, 500), attentions)
def test_more_tokens_and_more_logits_cost_more(case: Case, n: int, k: int, attention: str) -> None:
    arch, lora = case
    k = min(k, n)

    def update(n: int, k: int) -> int:
        return update_flops(arch, [n], logits=k, lora=lora, attention=attention).total

    assert update(n, k) < update(n + 1, k)
    if k < n:
        assert update(n, k) < update(n, k + 1)


@given(cases(), lengths)
def test_causal_is_at_most_full(case: Case, batch: list[int]) -> None:
    arch, lora = case
    causal, full = (update_flops(arch, batch, lora=lora, attention=a) for a in ("causal", "full"))
    assert attention_of(causal) <= attention_of(full)
    assert (attention_of(causal) == attention_of(full)) == (max(batch) == 1)
    assert causal.total - attention_of(causal) == full.total - attention_of(full)


@given(architectures(), st.integers(1, 500))
def test_a_window_beyond_the_sequence_changes_nothing(arch: Architecture, n: int) -> None:
    wide = replace(arch, windows=(n,) * arch.layers)
    none = replace(arch, windows=(None,) * arch.layers)
    assert forward_flops(wide, [n]).total == forward_flops(none, [n]).total
    assert generate_flops(wide, [1], [n]).total == generate_flops(none, [1], [n]).total
    if n > 1:
        narrow = replace(arch, windows=(n - 1,) * arch.layers)
        assert forward_flops(narrow, [n]).total < forward_flops(none, [n]).total


@given(architectures().flatmap(lambda arch: st.tuples(st.just(arch), adapters(arch))), lengths)
def test_an_adapter_adds_exactly_its_own_matmuls(
    case: tuple[Architecture, LoraSpec], batch: list[int]
) -> None:
    arch, lora = case
    on, off = forward_flops(arch, batch, lora=lora), forward_flops(arch, batch)
    assert on.total - off.total == on.by_kind()["lora"] > 0
    assert "lora" not in off.by_kind()


@given(cases(), lengths)
def test_recomputation_is_extra_and_at_most_a_forward(case: Case, batch: list[int]) -> None:
    arch, lora = case
    plain = update_flops(arch, batch, lora=lora, input_require_grads=True)
    stops = update_flops(arch, batch, lora=lora, gradient_checkpointing=True)
    whole = update_flops(arch, batch, lora=lora, gradient_checkpointing=True, use_reentrant=True)
    forward = plain.by_phase()["forward"]
    assert plain.total < stops.total <= whole.total <= plain.total + forward
    for phase in ("forward", "backward"):
        assert plain.by_phase()[phase] == stops.by_phase()[phase] == whole.by_phase()[phase]


@given(cases(), st.integers(1, 300), st.lists(st.integers(1, 300), min_size=2, max_size=6), attentions)
def test_sharing_a_prefix_saves_the_other_prefills(
    case: Case, prompt: int, completions: list[int], attention: str
) -> None:
    arch, lora = case
    group = len(completions)
    own, shared = (
        generate_flops(
            arch, [prompt], completions, group_size=group, shared_prefix=share, attention=attention, lora=lora
        )
        for share in (False, True)
    )
    prefill = shared.by_phase()["prefill"]
    assert own.total - shared.total == (group - 1) * prefill
    assert own.by_phase().get("decode") == shared.by_phase().get("decode")


@given(cases(), lengths)
def test_full_backward_is_twice_the_forward(case: Case, batch: list[int]) -> None:
    """The textbook factor holds when everything is trained, and only then."""
    arch, _ = case
    phases = update_flops(arch, batch, lora=None).by_phase()
    assert phases["backward"] == 2 * phases["forward"]
