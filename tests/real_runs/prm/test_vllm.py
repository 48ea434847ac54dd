"""The vLLM engine says the same as torch; runs where vLLM is installed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tiny_prm import save_qwen_prm

from real_runs.prm import Solution
from real_runs.prm.load import load_prm


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_vllm_agrees_with_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("vllm")
    # vLLM's CPU kernels need a head dimension of at least 32.
    folder = save_qwen_prm(tmp_path / "prm", hidden_size=128, intermediate_size=192)
    solutions = [
        Solution("What is 2 + 3?", ("Add them.", "2 + 3 = 5.", "So \\boxed{5}.")),
        Solution("Nothing?", ()),
        Solution("Why?", ("Because<extra_0> I say so.", "x" * 90)),
    ]
    options = {"dtype": "float32", "device": "cpu", "max_tokens": 256}
    expected = load_prm(str(folder), **options).score(solutions)
    found = load_prm(str(folder), engine="vllm", memory=1.0, **options).score(solutions)
    for a, b in zip(found, expected, strict=True):
        assert a.probabilities == pytest.approx(b.probabilities, abs=1e-4)
        assert (a.tokens, a.step_tokens, a.cut, a.forged) == (b.tokens, b.step_tokens, b.cut, b.forged)
    assert "VLLM_CPU_KVCACHE_SPACE" in os.environ


def test_a_missing_vllm_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from race.errors import CannotDo

    folder = save_qwen_prm(tmp_path / "prm")
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(CannotDo, match=r"race-rl\[vllm\]"):
        load_prm(str(folder), dtype="float32", device="cpu", engine="vllm")
