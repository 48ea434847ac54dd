"""What can be evaluated: a base model, a PEFT adapter on one, or what a run left in its folder."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from race.errors import CannotDo, InvalidInput
from real_runs.assemble import Parts, Setup, load_causal_lm
from real_runs.nano.defaults import default_options

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from race.flops import LoraSpec
    from real_runs.config import RunOptions
    from real_runs.contracts import Task
    from real_runs.evaluate import Evaluation
    from real_runs.policy import Policy

ADAPTER_CONFIG = "adapter_config.json"


@dataclass(frozen=True)
class Trained:
    """What is to be evaluated.

    Attributes
    ----------
    setup
        Base model and, when a run is evaluated, its data and reward.
    adapter
        Folder of a PEFT adapter on top of the base, or ``None``.
    weights
        Folder of a whole trained model (full fine-tuning) in place of the base, or ``None``.
    options
        Option values of the run it comes from, as a starting point.
    run
        The folder is a run's, so the setup is whole.
    """

    setup: Setup
    adapter: Path | None = None
    weights: Path | None = None
    options: Mapping[str, Any] | None = None
    run: bool = False


def find_trained(source: str) -> Trained:
    """Tell what ``source`` is: a run folder, an adapter folder, or a model.

    Raises
    ------
    InvalidInput
        A file that cannot be what its name says.
    CannotDo
        A run that has not finished.
    """
    path = Path(source)
    if (path / "run.json").is_file():
        return _of_run(path)
    if (path / ADAPTER_CONFIG).is_file():
        base = _read(path / ADAPTER_CONFIG).get("base_model_name_or_path")
        if not isinstance(base, str) or not base:
            raise InvalidInput(f"model: {path / ADAPTER_CONFIG} names no base model; set base_model_name_or_path in it")
        return Trained(Setup(base), adapter=path)
    return Trained(Setup(source))


def _of_run(path: Path) -> Trained:
    manifest = _read(path / "run.json")
    saved = path / "adapter"
    if not (path / "record.json").is_file():
        raise CannotDo(f"model: the run in {path} has not finished; run its command again to finish it, then evaluate")
    if not (path / "setup.json").is_file():
        raise CannotDo(f"model: {path} has no setup.json, so its data are not known; evaluate {saved} instead")
    setup = Setup.from_dict(_read(path / "setup.json"))
    whole = not (saved / ADAPTER_CONFIG).is_file()
    return Trained(
        setup,
        adapter=None if whole else saved,
        weights=saved if whole else None,
        options=manifest.get("options"),
        run=True,
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidInput(f"model: cannot read {path} ({error}); allowed is JSON") from None
    if not isinstance(data, dict):
        raise InvalidInput(f"model: {path} holds {type(data).__name__}; allowed is a JSON object")
    return data


def evaluation_options(trained: Trained, changes: Mapping[str, Any]) -> RunOptions:
    """Options to evaluate with: the run's own or the model's defaults, with ``changes`` on top."""
    from real_runs.config import RunOptions

    base = trained.options if trained.options is not None else default_options(trained.setup.model)
    return RunOptions.from_dict({**base, **changes})


def load_trained(trained: Trained, base: Callable[[], PreTrainedModel], options: RunOptions) -> Policy:
    """The model to evaluate, on its device; nothing in it can be trained.

    Raises
    ------
    InvalidInput
        The adapter does not fit the base, or is no plain LoRA.
    CannotDo
        It cannot be read.
    """
    import torch
    from peft import PeftModel
    from torch import nn

    from race.flops import Architecture, LoraSpec
    from real_runs.lean.weights import unsupported
    from real_runs.policy import Policy, pick_device

    device = pick_device(options.device)
    if options.threads:
        torch.set_num_threads(options.threads)
    lm = base() if trained.weights is None else load_causal_lm(str(trained.weights), options.dtype)
    nn.Module.to(lm, dtype=getattr(torch, options.dtype))
    architecture = Architecture.from_config(lm.config)
    model: nn.Module = lm
    lora: LoraSpec | None = None
    if trained.adapter is not None:
        lora = LoraSpec.from_peft(_read(trained.adapter / ADAPTER_CONFIG))
        try:
            model = PeftModel.from_pretrained(lm, str(trained.adapter))
        except (OSError, ValueError, RuntimeError) as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
            raise InvalidInput(
                f"model: the adapter in {trained.adapter} does not fit {trained.setup.model!r} ({first}); allowed is "
                "an adapter trained on this base"
            ) from None
    model = model.to(device).eval().requires_grad_(False)
    lean = options.forward != "transformers" and device.type == "cpu" and unsupported(lm) is None
    return Policy(model, lm, architecture, lora, options.lora_alpha, device, {}, False, lean)


def evaluate_trained(
    policy: Policy,
    parts: Parts,
    task: Task,
    options: RunOptions,
    *,
    problems: int,
    samples: int,
    seed: int,
    greedy: bool = False,
) -> Evaluation:
    """pass@1, pass@k, judge and (where ``parts`` has one) native reward of ``policy`` on ``task``."""
    from race.flops import cost_functions
    from real_runs.evaluate import evaluate
    from real_runs.grpo.pricing import Prices
    from real_runs.grpo.seeds import seed_for
    from real_runs.rollout import Sampling, build_backend

    limit = options.max_completion_tokens or task.max_completion_tokens
    sampling = Sampling(
        max_tokens=limit,
        eos_id=task.eos_id,
        banned=() if task.pad_id == task.eos_id else (task.pad_id,),
        temperature=0.0 if greedy else options.temperature,
        top_p=options.top_p,
        top_k=options.top_k,
        min_p=options.min_p,
    )
    prices = Prices(cost_functions(policy.architecture, lora=policy.lora, attention="causal"), True, False, False)
    with tempfile.TemporaryDirectory(prefix="race-eval-") as scratch:
        backend = build_backend(policy, options, max_tokens=limit, folder=scratch, banned=sampling.banned)
        try:
            backend.refresh(0)
            return evaluate(
                backend, task, prices=prices, sampling=sampling, problems=problems, samples=samples,
                seed=seed_for(seed, 0, f"eval:{task.name}"), reward=parts.reward, judge=parts.judge,
            )  # fmt: skip
        finally:
            backend.close()


def with_sets(trained: Trained, sets: Mapping[str, str], judge_model: str | None, data: Mapping[str, Any]) -> Setup:
    """The setup to evaluate with: the run's own data unless ``sets`` (name to source) are given.

    The first of ``sets`` takes the place of the held-out set, the others are benchmarks.
    """
    setup = trained.setup
    changed = {**setup.data, **data}
    if sets:
        first, *others = sets
        changed = {k: v for k, v in changed.items() if k != "train"}
        changed |= {"heldout": sets[first], "benchmarks": {name: sets[name] for name in others}}
    return replace(setup, judge_model=judge_model or setup.judge_model, data=changed)
