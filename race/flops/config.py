"""From a Hugging Face config, wherever it is, to an ``Architecture``."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from race.errors import CannotDo, InvalidInput
from race.flops.architecture import Architecture, Head, MoE
from race.flops.families import FAMILIES, Family
from race.flops.models import builtin_config, builtin_names

#: Head and, where the modelling code fixes it, number of labels, by the ending of the class name in a config's
#: ``architectures``. The last three are remote code: Qwen2.5-Math-PRM, Skywork-o1-Open-PRM (a value head on every
#: position) and Qwen2.5-Math-RM.
_HEADS: tuple[tuple[str, Head, int | None], ...] = (
    ("ForCausalLM", "lm", 0),
    ("ForConditionalGeneration", "lm", 0),
    ("ForTokenClassification", "token-classification", None),
    ("ForSequenceClassification", "sequence-classification", None),
    ("ForProcessRewardModel", "mlp-score", 2),
    ("ForPrmModel", "token-classification", 1),
    ("ForRewardModel", "mlp-score", 1),
)


def read_architecture(source: object) -> Architecture:
    """See ``Architecture.from_config``."""
    if isinstance(source, Architecture):
        return source
    if isinstance(source, Mapping):
        return parse(dict(source))
    if isinstance(source, Path):
        return _from_path(source)
    if isinstance(source, str):
        return _from_name(source)
    to_dict = getattr(source, "to_dict", None)
    if callable(to_dict):
        return parse(dict(to_dict()))
    raise InvalidInput(
        f"model: cannot read an architecture from {type(source).__name__}; "
        "give a name, a path, a dict or a config object"
    )


def _from_name(name: str) -> Architecture:
    config = builtin_config(name)
    if config is not None:
        return parse(config, name=name)
    path = Path(name).expanduser()
    if path.exists():
        return _from_path(path)
    if _looks_like_hub_id(name):
        return _from_hub(name)
    if "/" in name or name.endswith(".json"):
        raise InvalidInput(f"model: there is no file or folder {name}")
    near = _nearest(name)
    known = f"did you mean {near}" if near else f"built-in: {', '.join(builtin_names())}"
    raise InvalidInput(f"model: {name!r} is not a built-in name, a path or a hub id; {known}")


def _nearest(name: str) -> str:
    return ", ".join(difflib.get_close_matches(name.lower(), builtin_names(), n=3, cutoff=0.5))


def _looks_like_hub_id(name: str) -> bool:
    owner, slash, repo = name.partition("/")
    return bool(slash and owner and repo) and "/" not in repo and not name.startswith((".", "~"))


def _from_path(path: Path, name: str | None = None) -> Architecture:
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidInput(f"model: no config.json at {path}") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InvalidInput(f"model: {file} is not a readable config.json ({error})") from None
    if not isinstance(config, dict):
        raise InvalidInput(f"model: {file} does not hold a JSON object")
    return parse(config, name=name or (path if path.is_dir() else path.parent).name or path.name)


def _from_hub(name: str) -> Architecture:
    near = _nearest(name.partition("/")[2])
    hint = f"; nearest built-in: {near}" if near else ""
    try:
        from huggingface_hub import constants, hf_hub_download, try_to_load_from_cache
        from huggingface_hub.errors import (
            EntryNotFoundError,
            LocalEntryNotFoundError,
            RepositoryNotFoundError,
        )
    except ImportError:
        raise CannotDo(
            f"model: {name!r} is not built in, and huggingface_hub is not installed to fetch it{hint}"
        ) from None
    unreachable = CannotDo(f"model: {name!r} is not built in, and the hub cannot be reached{hint}")
    try:
        file = try_to_load_from_cache(name, "config.json")
        if not isinstance(file, str):
            if not _reachable(constants.ENDPOINT):
                raise unreachable
            file = hf_hub_download(name, "config.json")
    except LocalEntryNotFoundError:
        raise unreachable from None
    except (RepositoryNotFoundError, EntryNotFoundError):
        raise InvalidInput(
            f"model: no config.json of {name!r} on the hub (private or gated?){hint}"
        ) from None
    except (OSError, ValueError) as error:  # offline mode, HTTP errors; an id the hub refuses
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise CannotDo(f"model: cannot fetch config.json of {name!r} ({reason}){hint}") from None
    return _from_path(Path(file), name=name)


def _reachable(endpoint: str) -> bool:
    """Whether the hub's host answers. Its own client retries for half a minute before it gives up."""
    import socket
    from urllib.parse import urlsplit
    from urllib.request import getproxies

    if getproxies():
        return True  # only the proxy may know the host
    url = urlsplit(endpoint)
    try:
        with socket.create_connection((url.hostname or endpoint, url.port or 443), timeout=5):
            return True
    except OSError:
        return False


def parse(config: Mapping[str, Any], *, name: str | None = None) -> Architecture:
    """Turn the fields of a config into an ``Architecture``; ``InvalidInput`` names what is missing."""
    name = str(name or config.get("_name_or_path") or config.get("model_type") or "model")
    if isinstance(config.get("text_config"), Mapping):  # the language model of a multimodal one (Gemma 3)
        config = {**config["text_config"], "architectures": config.get("architectures")}
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        found = repr(model_type) if model_type is not None else "missing"
        raise InvalidInput(f"model_type: {found} is not supported; known: {', '.join(sorted(FAMILIES))}")
    if config.get("use_bidirectional_attention"):
        raise InvalidInput(
            f"use_bidirectional_attention: {name} is not causal; only causal models are supported"
        )
    family = FAMILIES[model_type]
    fields = _Fields({**family.defaults, **{k: v for k, v in config.items() if v is not None}}, name)
    layers = fields.integer("num_hidden_layers")
    heads = fields.integer("num_attention_heads")
    hidden = fields.integer("hidden_size")
    head_dim = fields.integer("head_dim", default=_head_dim(hidden, heads, fields))
    moe, sparse = _moe(family, model_type, fields, layers)
    head, num_labels = _head(config, fields)
    return Architecture(
        name=name,
        family=model_type,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=fields.integer("num_key_value_heads", default=heads),
        head_dim=head_dim,
        intermediate=fields.integer("intermediate_size"),
        vocab=fields.integer("vocab_size"),
        tied=fields.boolean("tie_word_embeddings", default=False),
        windows=_windows(family, config, fields, layers),
        sparse=sparse,
        moe=moe,
        head=head,
        num_labels=num_labels,
        fused=family.fused,
        qkv_bias=fields.flag(family.qkv_bias),
        o_bias=fields.flag(family.o_bias),
        mlp_bias=fields.flag(family.mlp_bias),
        qk_norm=family.qk_norm,
        norms_per_layer=family.norms_per_layer,
        rotary_dim=_rotary_dim(fields, head_dim),
        rotary_tables=layers if family.rotary_per_layer else 1,
    )


class _Fields:
    """Typed look-ups in a config that name the field when it is missing or of the wrong type."""

    def __init__(self, values: Mapping[str, Any], name: str) -> None:
        self.values = values
        self.name = name

    def integer(self, field: str, default: int | None = None, *, least: int = 1) -> int:
        value = self.values.get(field, default)
        if value is None:
            raise InvalidInput(f"{field}: missing in the config of {self.name}")
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InvalidInput(
                f"{field}: {value!r} in the config of {self.name} is not a whole number >= {least}"
            )
        return value

    def boolean(self, field: str, default: bool) -> bool:
        value = self.values.get(field, default)
        if not isinstance(value, bool):
            raise InvalidInput(f"{field}: {value!r} in the config of {self.name} is not true or false")
        return value

    def flag(self, rule: bool | str) -> bool:
        return rule if isinstance(rule, bool) else self.boolean(rule, False)


def _head_dim(hidden: int, heads: int, fields: _Fields) -> int | None:
    """``hidden / heads`` where it divides; otherwise the config has to say."""
    if "head_dim" in fields.values or hidden % heads:
        return None
    return hidden // heads


def _rotary_dim(fields: _Fields, head_dim: int) -> int:
    """Rotated dimensions: a fraction of the head in Phi-3, all of it elsewhere."""
    fraction = fields.values.get("partial_rotary_factor", 1.0)
    for group in ("rope_scaling", "rope_parameters"):
        rope = fields.values.get(group)
        if isinstance(rope, Mapping):
            fraction = rope.get("partial_rotary_factor", fraction)
    if isinstance(fraction, bool) or not isinstance(fraction, (int, float)) or not 0 < fraction <= 1:
        raise InvalidInput(
            f"partial_rotary_factor: {fraction!r} in the config of {fields.name} is not in (0, 1]"
        )
    return int(head_dim * fraction)


def _windows(
    family: Family, config: Mapping[str, Any], fields: _Fields, layers: int
) -> tuple[int | None, ...]:
    """Sliding window of each layer, as the family's configuration class lays it out."""
    layout = family.windows
    if layout == "never":
        return (None,) * layers
    if config.get("layer_types") is not None and layout not in ("all", "if_used"):
        return _from_layer_types(config["layer_types"], fields, layers)
    if layout in ("from_max", "even_below_max", "if_used") and not fields.boolean(
        "use_sliding_window", False
    ):
        return (None,) * layers
    if "sliding_window" in config and config["sliding_window"] is None:
        return (None,) * layers
    if layout == "all" and "sliding_window" not in fields.values:
        return (None,) * layers
    window = fields.integer("sliding_window")
    if layout in ("all", "if_used"):
        return (window,) * layers
    if layout == "pattern":
        period = fields.integer("sliding_window_pattern")
        return tuple(window if (i + 1) % period else None for i in range(layers))
    last = fields.integer("max_window_layers", least=0)
    if layout == "from_max":
        return tuple(window if i >= last else None for i in range(layers))
    return tuple(window if i % 2 == 0 and i < last else None for i in range(layers))


def _from_layer_types(given: Any, fields: _Fields, layers: int) -> tuple[int | None, ...]:
    known = ("full_attention", "sliding_attention")
    if (
        not isinstance(given, (list, tuple))
        or len(given) != layers
        or any(kind not in known for kind in given)
    ):
        raise InvalidInput(
            f"layer_types: the config of {fields.name} must list {layers} of {', '.join(known)}; found {given!r}"
        )
    return tuple(fields.integer("sliding_window") if kind == "sliding_attention" else None for kind in given)


def _moe(
    family: Family, model_type: str, fields: _Fields, layers: int
) -> tuple[MoE | None, tuple[bool, ...]]:
    if not family.moe:
        return None, (False,) * layers
    experts_field = "num_local_experts" if "num_local_experts" in fields.values else "num_experts"
    experts, top_k = fields.integer(experts_field), fields.integer("num_experts_per_tok")
    if model_type == "mixtral":
        return MoE(experts, top_k, fields.integer("intermediate_size")), (True,) * layers
    shared = fields.integer("shared_expert_intermediate_size") if model_type == "qwen2_moe" else 0
    moe = MoE(experts, top_k, fields.integer("moe_intermediate_size"), shared)
    step, dense = fields.integer("decoder_sparse_step", 1), fields.values.get("mlp_only_layers", [])
    if not isinstance(dense, (list, tuple)):
        raise InvalidInput(
            f"mlp_only_layers: {dense!r} in the config of {fields.name} is not a list of layers"
        )
    return moe, tuple(i not in dense and (i + 1) % step == 0 for i in range(layers))


def _head(config: Mapping[str, Any], fields: _Fields) -> tuple[Head, int]:
    """Head and number of labels, from the first of ``architectures``; an LM head when there is none."""
    names = config.get("architectures") or ["ForCausalLM"]
    name = str(names[0]) if isinstance(names, (list, tuple)) else repr(names)
    for ending, head, fixed in _HEADS:
        if name.endswith(ending):
            labels = config.get("id2label")
            default = (
                fixed if fixed is not None else len(labels) if isinstance(labels, Mapping) and labels else 2
            )
            return head, 0 if head == "lm" else fields.integer("num_labels", default)
    if name.endswith("Model") and "For" not in name:  # the bare backbone
        return "none", 0
    known = ", ".join(ending for ending, _, _ in _HEADS)
    raise InvalidInput(f"architectures: {name!r} has an unknown head; known endings: {known}, Model")
