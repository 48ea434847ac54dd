"""A real vLLM engine: adapters arrive, log-probs agree, a wrong engine is found out, a hung one is left.

Runs where vLLM is installed (in CI an environment of its own). Engines start once for the module and twice for a run.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from grpo_toys import ToyReward, ToyTask, toy_options, toy_recipe
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from race.allocation import step_allocation
from race.errors import CannotDo
from race.flops import Architecture
from race.records import PilotSpec
from real_runs.grpo.batch import collate
from real_runs.grpo.logprobs import token_logprobs
from real_runs.policy import Policy, build_policy
from real_runs.rollout import RolloutBackend, Sample, Sampling, build_backend
from real_runs.rollout.vllm import watched
from real_runs.run import run_pilot

PAD, EOS, VOCAB = 0, 1, 32
PROMPTS = [(2, 3, 4), (5,), (6, 7, 8, 9, 10), (3, 3)]


def model() -> PreTrainedModel:
    # vLLM's CPU kernels need a head dimension of at least 32.
    config = Qwen2Config(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=256, tie_word_embeddings=True, initializer_range=0.2,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Qwen2ForCausalLM(config)


def options(**changes: Any) -> Any:
    return toy_options(backend="vllm", engine_memory=1.0, max_prompt_tokens=64, temperature=0.8, **changes)


def test_without_vllm_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    policy = build_policy(model, toy_recipe(), options(), seed=0)
    with pytest.raises(CannotDo, match=r"race-rl\[vllm\]"):
        build_backend(policy, options(), max_tokens=8, folder=str(tmp_path))


def test_a_call_that_hangs_is_left_with_its_cause() -> None:
    started = time.monotonic()
    with pytest.raises(CannotDo, match=r"weight sync of step 3 did not return within 0\.2 s.*sync_timeout"):
        watched("weight sync of step 3", lambda: time.sleep(30), 0.2)
    assert time.monotonic() - started < 5
    with pytest.raises(CannotDo, match="generation failed: RuntimeError: engine core died"):
        watched("generation", lambda: (_ for _ in ()).throw(RuntimeError("engine core died")), 5)


@pytest.fixture(scope="module")
def policy() -> Policy:
    built = build_policy(model, toy_recipe(), options(), seed=0)
    move(built, 0.1)
    return built


@pytest.fixture(scope="module")
def engine(policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RolloutBackend]:
    pytest.importorskip("vllm")
    folder = str(tmp_path_factory.mktemp("engine"))
    backend = build_backend(policy, options(), max_tokens=16, folder=folder, banned=(PAD,))
    yield backend
    backend.close()


def move(policy: Policy, by: float) -> None:
    """Adapters to another place."""
    with torch.no_grad():
        for name, parameter in policy.parameters.items():
            if "lora_B" in name:
                parameter.add_(by * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))


def sampling(**changes: Any) -> Sampling:
    return Sampling(**{"max_tokens": 16, "eos_id": EOS, "banned": (PAD,), "temperature": 0.8, **changes})


def generate(engine: RolloutBackend, seed: int = 0, **changes: Any) -> list[Sample]:
    found = engine.generate(PROMPTS, group_size=4, sampling=sampling(**changes), seed=seed)
    assert [len(group) for group in found.groups] == [4] * len(PROMPTS)
    return [s for group in found.groups for s in group]


def gaps(policy: Policy, samples: list[Sample], **changes: Any) -> np.ndarray:
    """Trainer minus engine, for every token."""
    batch = collate(samples, policy.device)
    with torch.inference_mode():
        trained = token_logprobs(policy, batch, sampling(**changes)).logp
    found = (trained - batch.pad([s.logprobs for s in samples]))[batch.mask > 0]
    return np.asarray(found)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_rollouts_follow_the_adapter_and_log_probs_agree(engine: RolloutBackend, policy: Policy) -> None:
    engine.refresh(0)
    samples = generate(engine)
    assert [s.prompt_ids for s in samples[::4]] == PROMPTS
    assert len({len(s.token_ids) for s in samples}) > 2, "early EOS must occur for this test to mean anything"
    for s in samples:
        assert PAD not in s.token_ids
        assert EOS not in s.token_ids[:-1]
        assert s.finished is (s.token_ids[-1] == EOS)
        assert s.finished or len(s.token_ids) == 16
    found = gaps(policy, samples)
    assert np.abs(found).max() <= 1e-3  # float32
    assert np.exp(found).mean() == pytest.approx(1, abs=1e-3)
    assert np.abs(gaps(policy, samples, temperature=1.0)).max() > 0.05, "temperature must matter"
    # Another temperature is obeyed as well.
    assert np.abs(gaps(policy, generate(engine, temperature=1.3), temperature=1.3)).max() <= 1e-3
    assert [s.token_ids for s in generate(engine)] == [s.token_ids for s in samples], "same seed, same completions"

    move(policy, 0.2)
    assert np.abs(gaps(policy, generate(engine))).mean() > 0.02, "a stale engine must show"
    engine.refresh(1)
    assert np.abs(gaps(policy, generate(engine))).max() <= 1e-3


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_wrong_engine_is_found_out(
    engine: Any, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine._proved = False
    engine.refresh(0)
    before = policy.state()
    with monkeypatch.context() as patch:
        patch.setattr(engine, "_hand_over", lambda step: None)
        engine._proved = False
        with pytest.raises(CannotDo, match="did not reach the engine"):
            engine.refresh(5)
    assert all(torch.equal(before[name], tensor) for name, tensor in policy.state().items()), "proof changes nothing"
    with monkeypatch.context() as patch:
        real = engine._generate
        patch.setattr(engine, "_generate", lambda prompts, size, how, seed: real(
            prompts, size, Sampling(how.max_tokens, how.eos_id, how.banned, temperature=1.3), seed))
        with pytest.raises(CannotDo, match=r"importance ratio.*temperature"):
            engine.refresh(5)
    engine.refresh(5)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_weight_sync_that_hangs_times_out(engine: Any, policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.refresh(6)
    cores = [p for p in psutil.Process().children(recursive=True) if "EngineCore" in p.name() + " ".join(p.cmdline())]
    assert cores, "the engine runs in a process of its own"
    monkeypatch.setattr(engine, "_options", options(sync_timeout=2.0))
    for core in cores:
        os.kill(core.pid, signal.SIGSTOP)
    try:
        with pytest.raises(CannotDo, match=r"weight sync of step 7 did not return within 2 s"):
            engine.refresh(7)
    finally:
        for core in cores:
            os.kill(core.pid, signal.SIGCONT)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_run_is_interrupted_proved_again_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("vllm")
    from real_runs.rollout.vllm import VLLMRollouts

    proved: list[int] = []
    prove = VLLMRollouts._prove
    monkeypatch.setattr(VLLMRollouts, "_prove", lambda self, step: (proved.append(step), prove(self, step))[1])
    architecture = Architecture.from_config(model().config)
    recipe = toy_recipe(update_ratio=1.5, kl=True)
    budget = int(5 * step_allocation(architecture, recipe).total)
    spec = PilotSpec("tiny", architecture.params(), recipe, 0.5, budget, targets=("native", "pass@1"))
    task = ToyTask()

    def go(progress: Any = None) -> Any:
        return run_pilot(spec, task=task, reward=ToyReward(task), policy=model, out_dir=tmp_path, progress=progress,
                         options=options(eval_points=1, eval_problems=4))

    def stop(now: Any) -> None:
        if now.step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go(stop)
    record = go()
    assert proved == [0, 3]
    assert record.health.status == "ok"
    assert "logprob-mismatch" not in record.health.flags
    assert 0.97 * budget <= record.flops.total <= budget
    assert record.provenance["attempts"] == 2
