"""Shipped weights: hashes, sizes, what the bases and the reward models can do, and that training is repeatable."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from race.errors import CannotDo, InvalidInput
from race.flops import Architecture, forward_flops
from real_runs.contracts import Completion, Reward
from real_runs.nano import (
    NanoTask,
    load_policy,
    load_prm,
    load_tokenizer,
    model_folder,
    nano_reward,
    pretrain,
)
from real_runs.nano import models as nano_models
from real_runs.nano.alphabet import VOCAB, encode
from real_runs.nano.measure import complete, pass_rates, prm_accuracy
from real_runs.nano.models import MODELS, POLICIES, REWARD_MODELS, ROOT, model_config
from real_runs.nano.prm import NanoPrmReward, step_ends
from real_runs.nano.schedules import POLICY_SCHEDULES, PRM_SCHEDULES
from real_runs.nano.task import problem

PROMPT = "A4B-3C*8D+B="
CAREFUL = "B4-3=1C1*8=8D8+1=9#9"
SLIP = "B4-3=2C2*8=6D6+2=8#8"


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def said(text: str, *, finished: bool = True) -> Completion:
    tokens = encode(text + "$" if finished else text)
    return Completion(problem(PROMPT), tokens, text, finished)


def test_weights_are_small_and_all_in_the_manifest() -> None:
    files = [p for name in MODELS for p in model_folder(name).iterdir()]
    assert sum(p.stat().st_size for p in files) <= 8 * 2**20
    manifest = json.loads((ROOT / "manifest.json").read_text(encoding="utf-8"))
    assert sorted(manifest) == sorted(p.relative_to(ROOT).as_posix() for p in files)


@pytest.mark.parametrize("name", POLICIES)
def test_policies_load_as_what_the_accounting_says(name: str) -> None:
    model = load_policy(name)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert not model.training
    found = sum(p.numel() for p in model.parameters())
    assert found == Architecture.from_config(model_config(name)).count_params().total
    assert Architecture.from_config(name) == replace(Architecture.from_config(model.config), name=name)


@pytest.mark.parametrize("kind", sorted(REWARD_MODELS))
def test_reward_models_load_as_what_the_accounting_says(kind: str) -> None:
    model = load_prm(kind)
    name = REWARD_MODELS[kind]
    architecture = Architecture.from_config(name)
    assert (architecture.head, architecture.num_labels) == ("token-classification", VOCAB)
    assert sum(p.numel() for p in model.parameters()) == architecture.count_params().total


def test_unknown_names_are_refused() -> None:
    with pytest.raises(InvalidInput, match="nano-xl"):
        load_policy("nano-xl")
    with pytest.raises(InvalidInput, match="nano-prm"):
        load_policy("nano-prm")
    with pytest.raises(InvalidInput, match="sparse"):
        load_prm("sparse")


def test_a_changed_file_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT, tmp_path / "weights")
    monkeypatch.setattr(nano_models, "ROOT", tmp_path / "weights")
    nano_models.check_files.cache_clear()
    try:
        load_policy("nano-s")
        nano_models.check_files.cache_clear()
        path = tmp_path / "weights" / "nano-s" / "model.safetensors"
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        with pytest.raises(CannotDo, match=r"model\.safetensors: found .* the manifest says"):
            load_policy("nano-s")
        path.unlink()
        with pytest.raises(CannotDo, match="no file"):
            load_policy("nano-s")
    finally:
        nano_models.check_files.cache_clear()


def test_folders_are_what_transformers_and_engines_read() -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    text = PROMPT + CAREFUL
    model = AutoModelForCausalLM.from_pretrained(model_folder("nano-s"), local_files_only=True)
    ids = torch.tensor([encode(text)])
    with torch.inference_mode():
        assert torch.equal(model(input_ids=ids).logits, load_policy("nano-s")(input_ids=ids).logits)
    for tokenizer in (AutoTokenizer.from_pretrained(model_folder("nano-l")), load_tokenizer()):
        assert tuple(tokenizer(text).input_ids) == encode(text)
        assert tokenizer.decode(tokenizer(text).input_ids) == text
        assert tokenizer.eos_token_id == tokenizer.pad_token_id == NanoTask.eos_id


@pytest.mark.parametrize("name", POLICIES)
def test_bases_are_elicitable(name: str) -> None:
    model = load_policy(name)
    sampled, judge, _ = pass_rates(model, per_level=50, greedy=False)
    greedy, _, _ = pass_rates(model, per_level=20, greedy=True)
    # 250 problems: two standard errors are 0.05.
    assert 0.1 <= np.mean(list(sampled.values())) <= 0.5
    assert np.mean(list(greedy.values())) <= 0.5
    assert 0.15 <= judge <= 0.7


@pytest.mark.parametrize(("kind", "least"), [("prm", 0.8), ("proxy-prm", 0.65)])
def test_reward_models_beat_chance_and_are_not_perfect(kind: str, least: float) -> None:
    found = prm_accuracy(kind, per_level=60)
    assert found["step_auc"] >= least
    assert found["whole_auc"] >= least
    # Some steps are misjudged, on average over the right and the wrong ones.
    assert least <= found["step"] < 1


def test_the_dearer_reward_model_is_the_better_one() -> None:
    prm, proxy = (prm_accuracy(kind, per_level=60) for kind in ("prm", "proxy-prm"))
    assert prm["step"] > proxy["step"]
    assert prm["whole_auc"] >= proxy["whole_auc"]


def test_step_ends() -> None:
    assert step_ends(CAREFUL) == [5, 11, 17, 19]
    assert step_ends("#9") == [1]
    assert step_ends(CAREFUL[:12]) == [5, 11]
    assert step_ends("") == []


@pytest.mark.parametrize("kind", sorted(REWARD_MODELS))
def test_prm_reward_scores_charges_and_keeps_order(kind: str) -> None:
    reward = nano_reward(kind)
    assert isinstance(reward, Reward)
    assert reward.name == kind
    cases = [said(CAREFUL), said("#1"), said(SLIP), said(CAREFUL, finished=False), said(""), said("B4-3=1")]
    scores = reward.score(cases)
    assert np.all((scores.values >= 0) & (scores.values <= 1))
    assert scores.values[3:].tolist() == [0, 0, 0]
    assert scores.values[0] > max(scores.values[1], scores.values[2])
    alone = [reward.score([case]).values[0] for case in cases]
    assert scores.values == pytest.approx(alone, abs=1e-5)
    lengths = [len(c.problem.prompt_ids) + len(c.token_ids) for c in cases]
    architecture = Architecture.from_config(REWARD_MODELS[kind])
    expected = sum(
        forward_flops(architecture, lengths=[n], logits=[n], attention="causal").total for n in lengths
    )
    assert scores.flops == expected
    one = forward_flops(architecture, lengths=[33], logits=[33], attention="causal").total
    assert reward.flops_bound(13, 20) == one
    assert scores.parts["accuracy"].tolist() == [1, 0, 0, 0, 0, 0]
    assert scores.health["no_steps"] == 1


def test_prm_aggregations() -> None:
    cases = [said(CAREFUL), said(SLIP)]
    steps = NanoPrmReward("prm").step_probabilities(cases)
    assert [len(s) for s in steps] == [4, 4]
    for name, expected in (
        ("min", [min(s) for s in steps]),
        ("mean", [sum(s) / 4 for s in steps]),
        ("prod", [float(np.prod(s)) for s in steps]),
        ("last", [s[-1] for s in steps]),
    ):
        found = NanoPrmReward("prm", aggregation=name).score(cases).values
        assert found == pytest.approx(expected, abs=1e-6)
    with pytest.raises(InvalidInput, match="aggregation: found 'sum'"):
        NanoPrmReward("prm", aggregation="sum")


def test_completions_stop_at_the_end_token() -> None:
    problems = [p for p in NanoTask().heldout_problems(count=40) if p.level == "3"]
    found = complete(load_policy("nano-s"), problems, max_tokens=45)
    for completion in found:
        assert completion.finished == (completion.token_ids[-1] == NanoTask.eos_id)
        assert NanoTask.eos_id not in completion.token_ids[:-1]


def test_training_is_repeatable_to_the_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = replace(POLICY_SCHEDULES["nano-s"], facts=2, chains=2, hands=2, batch=20)
    monkeypatch.setitem(POLICY_SCHEDULES, "nano-s", short)
    monkeypatch.setitem(PRM_SCHEDULES, "nano-proxy-prm",
                        replace(PRM_SCHEDULES["nano-proxy-prm"], updates=4, batch=20))
    for root in ("a", "b"):
        torch.rand(3)  # whatever the process drew before must not matter
        for name in ("nano-s", "nano-proxy-prm"):
            pretrain.make(name, root=tmp_path / root)
    manifests = [json.loads((tmp_path / root / "manifest.json").read_text()) for root in ("a", "b")]
    assert manifests[0] == manifests[1]
    assert "nano-s/model.safetensors" in manifests[0]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_nano_s_is_made_again_to_the_same_behaviour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretrain.make("nano-s", root=tmp_path)
    monkeypatch.setattr(nano_models, "ROOT", tmp_path)
    nano_models.check_files.cache_clear()
    try:
        again = load_policy("nano-s")
    finally:
        nano_models.check_files.cache_clear()
    # Bits may differ on another CPU; what the model does may not.
    rates = [
        np.mean(list(pass_rates(model, per_level=200, greedy=False)[0].values()))
        for model in (again, load_policy("nano-s"))
    ]
    assert abs(rates[0] - rates[1]) < 0.08
