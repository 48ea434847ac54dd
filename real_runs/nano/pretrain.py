"""Make the nano models: ``python -m real_runs.nano.pretrain --all`` (or a model's name).

Writes ``weights/<model>/`` and the manifest, and prints what was made: pass@1 per level, sampled and greedy, for
policies; step and answer accuracy on held-out problems for reward models. One thread, fixed seeds and fixed update
counts: on one machine the same files come out, bit for bit. Another CPU or torch build rounds differently, which is
why the files are shipped.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM, Qwen2ForTokenClassification

from real_runs.nano.alphabet import VOCAB
from real_runs.nano.arithmetic import LINE_TOKENS
from real_runs.nano.corpora import CAREFUL, Mixture, labelled, solved
from real_runs.nano.measure import policy_report, prm_report
from real_runs.nano.models import MANIFEST, MODELS, ROOT, check_files, file_hash, load_policy
from real_runs.nano.schedules import POLICY_SCHEDULES, PRM_SCHEDULES, PolicySchedule, PrmSchedule, config
from real_runs.nano.tokenizer import build_tokenizer

FACT_LEVELS = (1, 2, 3)
LEVELS = (2, 3, 4, 5, 6)
# Most tokens of a solution are copied or structure; the results are what has to be learned.
RESULT_WEIGHT = 4.0
BETAS = (0.9, 0.98)
WEIGHT_DECAY = 0.01
WARM_UP = 50


def train_policy(schedule: PolicySchedule) -> PreTrainedModel:
    """Train a base policy from scratch."""
    torch.manual_seed(schedule.seed)
    model: PreTrainedModel = Qwen2ForCausalLM(Qwen2Config(**config(schedule))).train()
    rng = np.random.default_rng([schedule.seed, schedule.hidden])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0, betas=BETAS, weight_decay=WEIGHT_DECAY)
    facts, chains, hands = schedule.facts, schedule.chains, schedule.hands
    for update in range(facts + chains + hands):
        levels: tuple[int, ...]
        if update < facts:
            levels, mixture, scale = FACT_LEVELS, CAREFUL, 1.0
        elif update < facts + chains:
            levels, mixture, scale = LEVELS, CAREFUL, 0.1 + 0.9 * _cosine((update - facts) / chains)
        else:
            levels, mixture = LEVELS, schedule.mixture
            scale = 0.4 * _cosine((update - facts - chains) / hands)
        scale *= min(1.0, (update + 1) / WARM_UP)
        _policy_update(model, optimizer, rng, levels, mixture, schedule.batch, scale * schedule.learning_rate)
    model.eval()
    return model


def _policy_update(
    model: PreTrainedModel, optimizer: torch.optim.Optimizer, rng: np.random.Generator, levels: tuple[int, ...],
    mixture: Mixture, batch: int, learning_rate: float,
) -> None:
    """One update; one forward and backward per level, so that nothing is padded and no level is forgotten."""
    optimizer.zero_grad()
    for level in levels:
        tokens, weights = solved(rng, batch // len(levels), level, mixture)
        if mixture == CAREFUL:
            weights[:, LINE_TOKENS - 1 : LINE_TOKENS * level : LINE_TOKENS] = RESULT_WEIGHT
        ids, weight = torch.from_numpy(tokens), torch.from_numpy(weights)
        width = weight.shape[1]
        logits = model(input_ids=ids[:, :-1], logits_to_keep=width, use_cache=False).logits
        losses = torch.nn.functional.cross_entropy(
            logits.reshape(-1, VOCAB), ids[:, -width:].reshape(-1), reduction="none"
        )
        loss: Tensor = (losses * weight.reshape(-1)).sum() / weight.sum() / len(levels)
        loss.backward()
    _descend(model, optimizer, learning_rate)


def train_prm(schedule: PrmSchedule) -> PreTrainedModel:
    """Train a reward model on what was due at every token of flawed completions, from its policy's weights."""
    torch.manual_seed(schedule.seed)
    model: PreTrainedModel = Qwen2ForTokenClassification(Qwen2Config(**config(schedule)))
    policy = load_policy(schedule.base).state_dict()
    body = {name: tensor for name, tensor in policy.items() if name != "lm_head.weight"}
    head = {"score.weight": policy["lm_head.weight"], "score.bias": torch.zeros(VOCAB)}
    model.load_state_dict(body | head)
    model.train()
    rng = np.random.default_rng([schedule.seed, model.config.hidden_size])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0, betas=BETAS, weight_decay=WEIGHT_DECAY)
    for update in range(schedule.updates):
        optimizer.zero_grad()
        for level in LEVELS:
            batch = labelled(rng, schedule.batch // len(LEVELS), level)
            logits = model(input_ids=torch.from_numpy(batch.token_ids[:, :-1]), use_cache=False).logits
            loss: Tensor = torch.nn.functional.cross_entropy(
                logits.reshape(-1, VOCAB), torch.from_numpy(batch.due[:, 1:]).reshape(-1), ignore_index=-100
            )
            (loss / len(LEVELS)).backward()
        scale = min(1.0, (update + 1) / WARM_UP) * _cosine(update / schedule.updates)
        _descend(model, optimizer, scale * schedule.learning_rate)
    model.eval()
    return model


def _descend(model: PreTrainedModel, optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    optimizer.step()


def _cosine(progress: float) -> float:
    """From 1 to 0."""
    return 0.5 + 0.5 * math.cos(math.pi * progress)


def save(model: PreTrainedModel, name: str, root: Path) -> None:
    """Write a model's folder in half precision, and its hashes into the manifest."""
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    fields = {"model_type": "qwen2", "architectures": [type(model).__name__]}
    fields |= config(POLICY_SCHEDULES[name] if name in POLICY_SCHEDULES else PRM_SCHEDULES[name])
    fields |= {"dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(fields, indent=1) + "\n", encoding="utf-8")
    state = {key: tensor.half().contiguous() for key, tensor in model.state_dict().items()}
    if name in POLICY_SCHEDULES:
        # Tied to the embedding, so storing it would store that twice.
        del state["lm_head.weight"]
        build_tokenizer().save_pretrained(folder)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    manifest_path = root / MANIFEST
    manifest = json.loads(manifest_path.read_text(encoding="utf-8")) if manifest_path.exists() else {}
    manifest = {key: digest for key, digest in manifest.items() if not key.startswith(f"{name}/")}
    manifest |= {f"{name}/{path.name}": file_hash(path) for path in folder.iterdir()}
    manifest_path.write_text(json.dumps(dict(sorted(manifest.items())), indent=1) + "\n", encoding="utf-8")


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums depend on how they are split over threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def make(name: str, *, root: Path = ROOT) -> None:
    """Train ``name`` and write it under ``root``."""
    with one_thread():
        if name in POLICY_SCHEDULES:
            save(train_policy(POLICY_SCHEDULES[name]), name, root)
        else:
            save(train_prm(PRM_SCHEDULES[name]), name, root)


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m real_runs.nano.pretrain", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"any of {', '.join(MODELS)}")
    parser.add_argument("--all", action="store_true", help="make all of them")
    parser.add_argument("--report", action="store_true", help="only measure what is there")
    chosen = parser.parse_args(arguments)
    names = MODELS if chosen.all else chosen.models
    if not names or any(name not in MODELS for name in names):
        parser.error(f"models: found {' '.join(chosen.models) or 'none'}; allowed are {', '.join(MODELS)} or --all")
    for name in names:
        started = time.process_time()
        if not chosen.report:
            make(name)
            check_files.cache_clear()
        seconds = time.process_time() - started
        report = policy_report(name) if name in POLICY_SCHEDULES else prm_report(name)
        print(f"{name}: {seconds:.0f} s of one core", *report, sep="\n  ", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
