"""Where the nano models live and how they are loaded.

Each is a folder in the usual Hugging Face layout (``config.json``, ``model.safetensors``), so transformers and vLLM
can read it too; policies have a ``tokenizer.json`` as well. Weights are stored in half precision and run in single:
the rounded weights *are* the model. ``manifest.json`` holds the SHA-256 of every file, and nothing is loaded that
does not match it.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from race.errors import CannotDo, InvalidInput

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

ROOT = Path(__file__).parent / "weights"
MANIFEST = "manifest.json"

POLICIES = ("nano-s", "nano-m", "nano-l")
# Which model stands behind each learned reward system.
REWARD_MODELS = {"prm": "nano-prm", "proxy-prm": "nano-proxy-prm"}
MODELS = (*POLICIES, *REWARD_MODELS.values())


def model_folder(name: str) -> Path:
    """Folder of a nano model, by its name on the ladder; another name is `InvalidInput`."""
    if name not in MODELS:
        raise InvalidInput(f"model: found {name!r}; allowed are {', '.join(MODELS)}")
    return ROOT / name


def model_config(name: str) -> dict[str, Any]:
    """The ``config.json`` of a nano model."""
    config: dict[str, Any] = json.loads((model_folder(name) / "config.json").read_text(encoding="utf-8"))
    return config


def file_hash(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@lru_cache(maxsize=len(MODELS))
def check_files(name: str) -> None:
    """Compare a model's files with the manifest; a missing or changed one is `CannotDo`."""
    folder = model_folder(name)
    manifest: dict[str, str] = json.loads((ROOT / MANIFEST).read_text(encoding="utf-8"))
    expected = {key: digest for key, digest in manifest.items() if key.startswith(f"{name}/")}
    if f"{name}/model.safetensors" not in expected:
        raise CannotDo(f"{ROOT / MANIFEST}: has no entry for {name}; run python -m real_runs.nano.pretrain {name}")
    for key, digest in expected.items():
        path = ROOT / key
        found = file_hash(path) if path.is_file() else "no file"
        if found != digest:
            raise CannotDo(
                f"{path}: found {found[:12]}, the manifest says {digest[:12]}; reinstall, or make the weights "
                f"again with python -m real_runs.nano.pretrain {folder.name}"
            )


def load_policy(name: str) -> PreTrainedModel:
    """The base policy ``nano-s``, ``nano-m`` or ``nano-l``: a `Qwen2ForCausalLM` in float32 on the CPU.

    Raises
    ------
    InvalidInput
        Not a policy of the ladder.
    CannotDo
        A file is missing or is not the one the manifest names.
    """
    if name not in POLICIES:
        raise InvalidInput(f"model: found {name!r}; allowed are {', '.join(POLICIES)}")
    from transformers import Qwen2ForCausalLM

    return _load(Qwen2ForCausalLM, name)


def load_prm(kind: str) -> PreTrainedModel:
    """The model behind reward system ``prm`` or ``proxy-prm``: a `Qwen2ForTokenClassification` with two labels.

    Label 1 at the last token of a line means "this step is correct"; errors as `load_policy`.
    """
    if kind not in REWARD_MODELS:
        raise InvalidInput(f"reward: found {kind!r}; allowed are {', '.join(REWARD_MODELS)}")
    from transformers import Qwen2ForTokenClassification

    return _load(Qwen2ForTokenClassification, REWARD_MODELS[kind])


def load_tokenizer() -> PreTrainedTokenizerFast:
    """The alphabet as a Hugging Face tokenizer, for trainers and engines that want one."""
    from transformers import PreTrainedTokenizerFast

    check_files(POLICIES[0])
    tokenizer: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(model_folder(POLICIES[0]))
    return tokenizer


def _load(cls: Any, name: str) -> PreTrainedModel:
    from safetensors.torch import load_file

    check_files(name)
    folder = model_folder(name)
    model: PreTrainedModel = cls(cls.config_class.from_pretrained(folder))
    state = {key: tensor.float() for key, tensor in load_file(folder / "model.safetensors").items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    # The head of a tied policy is the embedding and is not stored twice.
    if unexpected or set(missing) - {"lm_head.weight"}:
        odd = sorted([*unexpected, *missing])[0]
        raise CannotDo(f"{folder}: weight {odd!r} is not in both config and file; reinstall")
    model.tie_weights()
    model.eval()
    return model
