"""Process reward models by checkpoint: what kind it is decides how it is read."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForTokenClassification,
    AutoTokenizer,
    PretrainedConfig,
)

from race.errors import CannotDo, InvalidInput
from race.flops import Architecture
from real_runs.policy import pick_device
from real_runs.prm.formats import SEPARATOR, SeparatorFormat, StepFormat, TokenLabelFormat
from real_runs.prm.qwen import ARCHITECTURE, load_qwen_prm
from real_runs.prm.scorer import Logits, StepPrm, TorchPrm

Format = Literal["auto", "separator", "token-labels"]
Engine = Literal["torch", "vllm"]


def load_prm(
    path: str,
    *,
    step_format: Format = "auto",
    separator: str | None = None,
    dtype: str = "bfloat16",
    device: str = "auto",
    max_tokens: int | None = None,
    batch_tokens: int = 16_384,
    trust_remote_code: bool = False,
    engine: Engine = "torch",
    memory: float = 0.35,
) -> StepPrm:
    """Load a process reward model from a folder or the hub.

    Parameters
    ----------
    step_format
        ``separator`` (Qwen2.5-Math-PRM), ``token-labels`` (TRL's PRMTrainer); ``auto`` reads it off the checkpoint.
    separator
        The step mark; default ``<extra_0>`` or a newline, by format.
    max_tokens
        Longest input; default: the checkpoint's context.
    trust_remote_code
        Run the checkpoint's own modelling code. Off, and only needed for architectures other than these two.
    engine, memory
        ``torch``, or ``vllm`` for the Qwen2.5-Math-PRM layout with this share of the GPU's memory (GiB on a CPU).

    Raises
    ------
    InvalidInput
        Another kind of checkpoint, missing weights, or a separator the tokenizer does not have.
    CannotDo
        The checkpoint cannot be read or fetched here.
    """
    if step_format not in ("auto", "separator", "token-labels"):
        raise InvalidInput(f"step_format: found {step_format!r}; allowed are auto, separator, token-labels")
    if dtype not in ("float32", "bfloat16", "float16"):
        raise InvalidInput(f"dtype: found {dtype!r}; allowed are float32, bfloat16, float16")
    if engine not in ("torch", "vllm"):
        raise InvalidInput(f"engine: found {engine!r}; allowed are torch, vllm")
    config = _config(path, trust_remote_code)
    kind = (getattr(config, "architectures", None) or [""])[0]
    labels_head = kind.endswith("ForTokenClassification")
    head: Any = "token-classification" if labels_head else "mlp-score"
    architecture = Architecture.from_config(config, head=head, num_labels=int(getattr(config, "num_labels", 2)))
    chosen = ("token-labels" if labels_head else "separator") if step_format == "auto" else step_format
    tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=trust_remote_code)
    formatter: StepFormat
    if chosen == "separator":
        formatter = SeparatorFormat(tokenizer, separator=separator or SEPARATOR)
    else:
        formatter = TokenLabelFormat(tokenizer, separator=separator or "\n")
    name = path.rstrip("/").rsplit("/", 1)[-1]
    longest = max_tokens or int(config.max_position_embeddings)
    target = pick_device(device)
    if engine == "vllm":
        if kind != ARCHITECTURE:
            raise InvalidInput(f"engine: found vllm with a {kind}; allowed is {ARCHITECTURE}, or engine = torch")
        from real_runs.prm.vllm import VllmPrm

        return VllmPrm(
            name, path, formatter, architecture, max_tokens=longest, dtype=dtype, device=target.type, memory=memory
        )
    model, logits = _model(path, kind, config, getattr(torch, dtype), trust_remote_code)
    pad = tokenizer.pad_token_id
    return TorchPrm(
        name,
        model.to(target),
        logits,
        formatter,
        architecture,
        max_tokens=longest,
        pad_id=int(pad) if pad is not None else 0,
        batch_tokens=batch_tokens,
    )


def _config(path: str, trust_remote_code: bool) -> PretrainedConfig:
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(path, trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        first = (str(error).strip().splitlines() or [""])[0][:160]
        raise CannotDo(
            f"prm: {path!r} cannot be read or fetched here ({first}); give a folder with config.json"
        ) from None
    return config


def _model(
    path: str, kind: str, config: PretrainedConfig, dtype: torch.dtype, trust_remote_code: bool
) -> tuple[nn.Module, Logits]:
    if kind == ARCHITECTURE:
        qwen = load_qwen_prm(path, dtype=dtype)
        return qwen, lambda ids, mask: qwen(ids, attention_mask=mask)
    if kind.endswith("ForTokenClassification"):
        if int(getattr(config, "num_labels", 2)) != 2:
            raise InvalidInput(
                f"prm: {path!r} has {config.num_labels} labels; allowed is a two-class head, wrong (0) and right (1)"
            )
        model, info = AutoModelForTokenClassification.from_pretrained(path, dtype=dtype, output_loading_info=True)
        missing = sorted(info["missing_keys"])
        if missing:
            raise InvalidInput(
                f"prm: {path!r} has no weight {missing[0]!r} ({len(missing)} missing), so that part would be random; "
                "allowed is a trained token classifier"
            )
        return model, lambda ids, mask: _first(model(input_ids=ids, attention_mask=mask))
    if not trust_remote_code:
        raise InvalidInput(
            f"prm: {path!r} is a {kind or 'model of no named kind'}; allowed are {ARCHITECTURE} and "
            "...ForTokenClassification; if its own code is to be run, set trust_remote_code"
        )
    remote = AutoModel.from_pretrained(path, dtype=dtype, trust_remote_code=True)
    return remote, lambda ids, mask: _first(remote(input_ids=ids, attention_mask=mask))


def _first(output: Any) -> Tensor:
    logits: Tensor = output if isinstance(output, Tensor) else output[0]
    return logits
