"""Where an architecture can be read from, and what the config's fields mean."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from race.errors import CannotDo, InvalidInput
from race.flops import Architecture, builtin_names
from race.flops.families import FAMILIES

QWEN = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 100,
    "vocab_size": 50,
    "tie_word_embeddings": True,
}


def read(**changes: Any) -> Architecture:
    return Architecture.from_config({**QWEN, **changes})


def test_sources_agree(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(QWEN))

    class Config:
        def to_dict(self) -> dict[str, Any]:
            return dict(QWEN)

    arch = Architecture.from_config(QWEN)
    for source in (Config(), file, str(file), tmp_path, str(tmp_path), arch):
        other = Architecture.from_config(source)
        assert (other.hidden, other.layers, other.windows, other.params()) == (
            64,
            4,
            (None,) * 4,
            arch.params(),
        )
    assert Architecture.from_config(tmp_path).name == tmp_path.name
    assert hash(arch) == hash(Architecture.from_config(dict(QWEN)))


@pytest.mark.parametrize(
    "alias",
    [
        "Qwen/Qwen2.5-1.5B",
        "Qwen/Qwen2.5-1.5B-Instruct",
        "qwen/qwen2.5-1.5b-instruct",
        "Qwen2.5-1.5B",
        "QWEN2.5-1.5B",
    ],
)
def test_aliases_of_built_in_models(alias: str) -> None:
    arch, base = Architecture.from_config(alias), Architecture.from_config("qwen2.5-1.5b")
    assert arch.name == alias  # shown as it was asked for
    assert arch.params() == base.params() == 1_543_714_304


def test_built_in_names() -> None:
    assert len(set(builtin_names())) == len(builtin_names()) >= 30
    for size in ("0.5b", "1.5b", "3b", "7b", "14b", "32b", "72b"):
        assert f"qwen2.5-{size}" in builtin_names()
    prm = Architecture.from_config("Qwen/Qwen2.5-Math-PRM-7B")
    assert (prm.head, prm.num_labels) == ("mlp-score", 2)


def test_overriding_the_head() -> None:
    arch = Architecture.from_config("qwen2.5-0.5b", head="mlp-score", num_labels=2)
    assert arch.params() == Architecture.from_config("qwen2.5-prm-0.5b").params()
    assert Architecture.from_config("qwen2.5-0.5b", head="none").head == "none"
    with pytest.raises(InvalidInput, match=r"^num_labels: "):
        Architecture.from_config("qwen2.5-0.5b", head="token-classification")
    with pytest.raises(InvalidInput, match=r"^num_labels: "):
        Architecture.from_config("qwen2.5-0.5b", head="token-classification", num_labels=0)


@pytest.mark.parametrize(
    ("name", "head", "labels"),
    [
        ("Qwen2ForCausalLM", "lm", 0),
        ("Qwen2ForTokenClassification", "token-classification", 3),
        ("Qwen2ForSequenceClassification", "sequence-classification", 3),
        ("Qwen2ForProcessRewardModel", "mlp-score", 2),
        ("Qwen2ForRewardModel", "mlp-score", 1),
        ("Qwen2ForPrmModel", "token-classification", 1),
        ("Qwen2Model", "none", 0),
    ],
)
def test_heads_by_class_name(name: str, head: str, labels: int) -> None:
    arch = read(architectures=[name], id2label={0: "a", 1: "b", 2: "c"})
    assert (arch.head, arch.num_labels) == (head, labels)


def test_head_dim_is_explicit_when_present() -> None:
    assert read().head_dim == 16
    assert read(head_dim=20).head_dim == 20
    assert read(model_type="qwen3").head_dim == 128  # the class default of Qwen3, not hidden / heads
    with pytest.raises(InvalidInput, match=r"^head_dim: missing"):
        read(hidden_size=66)


def test_windows() -> None:
    full = (None,) * 4
    assert read(sliding_window=8).windows == full  # not used unless use_sliding_window
    assert read(sliding_window=8, use_sliding_window=True, max_window_layers=3).windows == (
        None,
        None,
        None,
        8,
    )
    kinds = ["sliding_attention", "full_attention"] * 2
    assert read(layer_types=kinds, sliding_window=8).windows == (8, None, 8, None)
    assert read(model_type="mistral").windows == (4096,) * 4  # transformers' default when left out
    assert read(model_type="mistral", sliding_window=None).windows == full
    assert read(model_type="phi3").windows == full
    assert read(model_type="gemma2", sliding_window=8).windows == (8, None, 8, None)
    assert read(model_type="gemma3_text", sliding_window=8, sliding_window_pattern=3).windows == (
        8,
        8,
        None,
        8,
    )
    assert read(model_type="llama", sliding_window=8).windows == full


def test_gemma3_as_published() -> None:
    """The 4B config on the hub nests the language model and leaves class defaults out."""
    text = {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    }
    arch = Architecture.from_config(
        {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "text_config": text}
    )
    assert (arch.heads, arch.kv_heads, arch.head_dim, arch.vocab, arch.tied) == (8, 4, 256, 262208, True)
    assert arch.windows.count(None) == 5
    assert arch.params() == pytest.approx(3.88e9, rel=0.01)  # 4.3e9 less the vision tower


@pytest.mark.parametrize("field", ["num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size"])
def test_a_missing_field_is_named(field: str) -> None:
    config = {k: v for k, v in QWEN.items() if k != field}
    with pytest.raises(InvalidInput, match=rf"^{field}: missing"):
        Architecture.from_config(config)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden_size", 0),
        ("hidden_size", -64),
        ("hidden_size", 64.5),
        ("hidden_size", "64"),
        ("num_hidden_layers", True),
        ("vocab_size", float("nan")),
        ("tie_word_embeddings", "yes"),
        ("num_key_value_heads", 3),
        ("layer_types", ["full_attention"]),
        ("layer_types", ["linear_attention"] * 4),
        ("architectures", ["Qwen2ForSomethingElse"]),
        ("architectures", ["Qwen2ForValueModel"]),
        ("architectures", "Qwen2ForCausalLM"),
        ("partial_rotary_factor", "half"),
        ("partial_rotary_factor", 2),
        ("model_type", "gpt2"),
        ("model_type", None),
        ("use_bidirectional_attention", True),
    ],
)
def test_a_bad_field_is_named(field: str, value: object) -> None:
    name = {"num_key_value_heads": "kv_heads"}.get(field, field)
    with pytest.raises(InvalidInput, match=rf"^{name}: "):
        read(**{field: value})


@pytest.mark.parametrize(
    "sparse", [{"num_experts_per_tok": 9}, {"num_experts": None}, {"moe_intermediate_size": 0}]
)
def test_bad_experts(sparse: dict[str, Any]) -> None:
    good = {"model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 5}
    assert read(**good).moe is not None
    with pytest.raises(InvalidInput, match=r"^(moe\.top_k|num_experts|moe_intermediate_size): "):
        read(**{**good, **sparse})


def test_unknown_names() -> None:
    with pytest.raises(InvalidInput, match=r"^model: 'qwen2.5-1.6b'.*qwen2.5-1.5b"):
        Architecture.from_config("qwen2.5-1.6b")
    with pytest.raises(InvalidInput, match=r"built-in: .*qwen2.5-7b"):
        Architecture.from_config("zzz")
    with pytest.raises(InvalidInput, match=r"^model: there is no file"):
        Architecture.from_config("/no/such/config.json")
    for source in (7, None, True, ["qwen2"]):
        with pytest.raises(InvalidInput, match=r"^model: cannot read"):
            Architecture.from_config(source)


def test_bad_files(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"^model: no config\.json"):
        Architecture.from_config(tmp_path)
    file = tmp_path / "config.json"
    for text in ("", "{", "[]", "\x00"):
        file.write_text(text)
        with pytest.raises(InvalidInput, match=r"^model: "):
            Architecture.from_config(tmp_path)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match=r"^model: "):
        Architecture.from_config(file)


def test_hub_ids_without_a_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(CannotDo, match=r"huggingface_hub is not installed.*qwen2\.5-7b"):
        Architecture.from_config("Qwen/Qwen2.5-9B")


def test_hub_ids_when_offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    for variable in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(CannotDo, match=r"the hub cannot be reached"):
        Architecture.from_config("nobody/no-such-model")


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 9),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.integers(0, 3), max_size=4),
)
FIELDS = (*QWEN, "head_dim", "sliding_window", "use_sliding_window", "max_window_layers", "layer_types")
MORE = (
    "rope_parameters",
    "rope_scaling",
    "num_experts",
    "num_experts_per_tok",
    "mlp_only_layers",
    "id2label",
)


@settings(deadline=None, max_examples=300)
@given(
    st.sampled_from(sorted(FAMILIES)), st.dictionaries(st.sampled_from([*FIELDS, *MORE, "text_config"]), JUNK)
)
def test_junk_is_an_architecture_or_one_clear_line(family: str, junk: dict[str, Any]) -> None:
    message = "field: "
    try:
        assert Architecture.from_config({**QWEN, "model_type": family, **junk}).params() > 0
    except InvalidInput as error:
        message = str(error)
    assert ": " in message
    assert "\n" not in message


def test_the_nano_ladder_is_the_one_that_is_trained() -> None:
    from real_runs.nano.schedules import POLICY_SCHEDULES, PRM_SCHEDULES, config

    for name, schedule in {**POLICY_SCHEDULES, **PRM_SCHEDULES}.items():
        head = "Qwen2ForTokenClassification" if name in PRM_SCHEDULES else "Qwen2ForCausalLM"
        fields = {"model_type": "qwen2", "architectures": [head], **config(schedule)}
        assert replace(Architecture.from_config(fields), name=name) == Architecture.from_config(name)
