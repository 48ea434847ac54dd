"""Trainers' logs in every state that people have them in: odd, old, damaged, hostile."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from importer_samples import (
    MODEL,
    RECIPE,
    STEPS,
    nemo_rows,
    openrlhf_rows,
    trl_rows,
    verl_rows,
    write_nemo_events,
    write_openrlhf,
    write_prime_rl,
    write_trl,
    write_trl_console,
    write_trl_wandb_csv,
    write_verl_console,
    write_verl_jsonl,
)

from race.cards import Card, RunLog, card_of
from race.errors import InvalidInput
from race.importers import RunFacts, choose_run, import_log, importer_for, key_tables, read_runs
from race.importers._keys import Key
from race.records import PilotRecord

KNOWN = {k: v for k, v in RECIPE.items() if k not in ("prompt_tokens", "completion_tokens")}


def one(path: Path, **how: Any) -> RunLog:
    (log,) = read_runs(path, **how)
    return log


def state(folder: Path, rows: list[dict[str, Any]], **extra: Any) -> Path:
    path = folder / "trainer_state.json"
    path.write_text(json.dumps({"log_history": rows, **extra}))
    return path


def lines(folder: Path, entries: list[Any]) -> Path:
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


def priced(log: RunLog, **given: Any) -> Card:
    return card_of(log, "qwen2.5-1.5b", given={**KNOWN, **given}, defaults=key_tables()[log.trainer].defaults)


def record(path: Path, **facts: Any) -> PilotRecord:
    recipe = facts.pop("recipe", KNOWN)
    (found,) = importer_for(path).read(path, RunFacts(recipe=recipe, models=MODEL, **facts))
    return found


# Generations of keys


def test_keys_of_every_generation_of_trl(tmp_path: Path) -> None:
    old = [
        {"step": s, "loss": 0.0, "completion_length": 200.0, "rewards/accuracy_reward": 0.5, "reward": 0.5,
         "reward_std": 0.1, "kl": 0.01}
        for s in STEPS
    ]  # fmt: skip
    log = one(state(tmp_path, old))
    assert log.releases == "0.16 or earlier"
    assert log.rewards["accuracy_reward"][0] == 0.5
    assert priced(log, prompt_tokens=100).tokens["mean_completion"] == 200
    assert priced(log, prompt_tokens=100).values["reference"] is True
    new = one(state(tmp_path, trl_rows()))
    assert new.releases == "0.26 or later"
    assert list(new.rewards) == ["accuracy_reward"]


def test_keys_of_every_generation_of_prime_rl(tmp_path: Path) -> None:
    for release, keys in (
        ("0.3 to 0.4", ("completion_len/mean", "prompt_len/mean", "reward/mean")),
        ("0.5 to 0.6", ("decode_len/all/mean", "prefill_len/all/mean", "reward/all/mean")),
    ):
        rows = [dict(zip(("step", *keys), (s, 230.0, 100.0, 0.5), strict=True)) for s in range(4)]
        log = one(lines(tmp_path, rows))
        assert log.releases == release
        card = priced(log)
        assert (card.tokens["mean_completion"], card.tokens["mean_prompt"]) == (230, 100)


def test_console_numbers_of_numpy_and_torch(tmp_path: Path) -> None:
    path = write_verl_console(tmp_path)
    assert list(one(path).series["completion_mean"]) == [250.0 + s for s in STEPS]
    text = (
        "(Actor) Global step 1: {'reward': tensor(0.5, dtype=torch.float64), 'response_length': np.float32(9.0), "
        "'total_length': 30, 'kl': nan, 'actor_lr': numpy.float64(1e-06), 'name': 'x'}\n"
    )
    (tmp_path / "o.log").write_text(text)
    log = one(tmp_path / "o.log")
    assert (log.series["reward"][0], log.series["completion_mean"][0], log.series["total_mean"][0]) == (
        0.5,
        9,
        30,
    )
    assert not log.has("kl")


def test_tensors_on_a_device_are_read_like_numbers(tmp_path: Path) -> None:
    plain = "step:1 - critic/rewards/mean:0.5 - response_length/mean:{} - prompt_length/mean:100.0\n"
    (tmp_path / "v.log").write_text(plain.format("tensor(250.5, device='cuda:0')"))
    assert one(tmp_path / "v.log").series["completion_mean"][0] == 250.5


def test_a_printed_dict_is_read_and_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    for number in (f"__import__('pathlib').Path({str(mark)!r}).touch()", "(lambda: 1)()", "9**9**9"):
        (tmp_path / "x.log").write_text(f"Global step 1: {{'reward': {number}, 'response_length': 3}}\n")
        with pytest.raises(InvalidInput, match="found no line of metrics"):
            one(tmp_path / "x.log")
    assert not mark.exists()


def test_rows_of_two_writers_are_merged_by_step(tmp_path: Path) -> None:
    log = one(write_prime_rl(tmp_path))
    assert list(log.steps) == list(STEPS)  # counted from 0 in the file
    assert log.redone == 0
    assert list(log.series["seconds_update"]) == [11.0] * 6
    assert list(log.series["completion_mean"]) == [230.0 + s for s in range(6)]


def test_a_chart_export_has_one_run_a_column(tmp_path: Path) -> None:
    path = tmp_path / "chart.csv"
    path.write_text(
        '"Step","big - train/completions/mean_length","big - train/completions/mean_length__MIN",'
        '"small - train/completions/mean_length","small - train/completions/mean_length__MAX"\n'
        '"1","100","90","200","210"\n"2","110","90","","210"\n"3","120","90","220","210"\n'
    )
    runs = read_runs(path)
    assert [r.run for r in runs] == ["big", "small"]
    assert [list(r.steps) for r in runs] == [[1, 2, 3], [1, 3]]
    with pytest.raises(InvalidInput, match=r"holds 2 runs \(1: big, steps 1 to 3; 2: small, .*choose it"):
        choose_run(path, runs, None)
    assert choose_run(path, runs, 2).run == "small"
    with pytest.raises(InvalidInput, match=r"^run: found 3; allowed are 1 to 2"):
        choose_run(path, runs, 3)


def test_tokens_that_nobody_counted_are_noted(tmp_path: Path) -> None:
    rows = [{**r, "tools/call_frequency": 1.5} for r in trl_rows()]
    assert any("tools/call_frequency is not 0" in note for note in one(state(tmp_path, rows)).notes)
    rows = [{**r, "tools/call_frequency": 0.0} for r in trl_rows()]
    assert one(state(tmp_path, rows)).notes == ()


@pytest.mark.parametrize("variant", [{"importance_sampling_level": "sequence"}, {"loss_type": "dapo"}])
def test_variants_of_the_loss_cost_the_same(tmp_path: Path, variant: dict[str, str]) -> None:
    """GSPO and DAPO change what is done with log-probs, not how many are computed."""
    plain = priced(one(state(tmp_path, trl_rows()))).flops
    (tmp_path / "training_args.json").write_text(json.dumps(variant))
    assert priced(one(state(tmp_path, trl_rows()))).flops == plain


# Order


def test_logging_every_k_steps_covers_every_step(tmp_path: Path) -> None:
    rows = [{**r, "step": 10 * r["step"], "num_tokens": 10 * r["num_tokens"]} for r in trl_rows()]
    log = one(state(tmp_path, rows))
    assert log.total_steps == 60
    dense, sparse = priced(one(state(tmp_path, trl_rows()))), priced(log)
    assert sparse.flops.total == pytest.approx(10 * float(dense.flops.total), rel=1e-6)


def test_a_first_row_at_step_one_and_missing_steps(tmp_path: Path) -> None:
    rows = trl_rows()
    for row, step in zip(rows, (1, 10, 20, 30, 60, 70), strict=True):
        row["step"] = step
    log = one(state(tmp_path, rows))
    assert list(log.covered) == [1, 9, 10, 10, 30, 10]
    assert log.total_steps == 70
    assert any("20 steps in 1 gaps are not in the log" in note for note in log.notes)


def test_a_log_that_starts_in_the_middle_is_charged_for_what_it_holds(tmp_path: Path) -> None:
    rows = [{**r, "step": r["step"] + 500, "num_tokens": r["num_tokens"] + 10**6} for r in trl_rows()]
    log = one(state(tmp_path, rows))
    assert log.total_steps == 6
    assert any(note.startswith("the log starts at step 501: the 500 steps before") for note in log.notes)
    assert priced(log).tokens["mean_prompt"] == pytest.approx(100, rel=0.02)


def test_a_resumed_run_charges_what_it_did_twice(tmp_path: Path) -> None:
    rows = [{"step": s, "data": r} for s, r in zip(STEPS, verl_rows(), strict=True)]
    log = one(lines(tmp_path, [*rows[:5], *rows[2:]]))
    assert (log.total_steps, log.redone) == (6, 3)
    assert priced(log).flops.total == pytest.approx(
        1.5 * float(priced(one(lines(tmp_path, rows))).flops.total)
    )


def test_two_runs_in_one_file_are_not_mixed(tmp_path: Path) -> None:
    rows = [{"step": s, "data": r} for s, r in zip(STEPS, verl_rows(), strict=True)]
    path = lines(tmp_path, rows + rows)
    with pytest.raises(
        InvalidInput, match=r"holds 2 runs \(1: run 1, from line 1, steps 1 to 6; 2: run 2, from line 7"
    ):
        record(path)
    assert record(path, run=2).steps == 6


def test_reuse_shows_in_which_rows_have_lengths(tmp_path: Path) -> None:
    rows = trl_rows()
    for row in rows:
        if row["step"] % 3 != 1:
            for key in [k for k in row if k.startswith(("completions/", "reward", "num_tokens", "frac"))]:
                del row[key]
    card = priced(one(state(tmp_path, rows)), update_ratio=3)
    assert card.values["period"] == 3
    assert card.values["old_logprobs"] is True
    assert card.tokens["samples"] == 2 * 32
    assert card.work.trained.sum() == 6 * 32


# Files that are not what they seem


def test_a_truncated_file_names_the_place_and_can_be_salvaged(tmp_path: Path) -> None:
    path = write_trl(tmp_path)
    text = path.read_text()
    path.write_text(text[: len(text) * 2 // 3])
    with pytest.raises(
        InvalidInput,
        match=r"line \d+, column \d+ \(byte \d+ of \d+\): is not JSON: .*; 3 complete entries come before it",
    ):
        one(path)
    log = one(path, salvage=True)
    assert log.total_steps == 3
    assert "only the 3 complete entries before it were read" in log.notes[0]
    assert record(path, salvage=True).steps == 3
    path.write_text(text[:30])
    with pytest.raises(InvalidInput, match="is not JSON"):
        one(path, salvage=True)


def test_a_last_line_cut_off_by_a_crash_is_noted_and_one_inside_is_not_skipped(tmp_path: Path) -> None:
    path = write_verl_jsonl(tmp_path)
    text = path.read_text()
    path.write_text(text[:-40])
    log = one(path)
    assert log.total_steps == 5
    assert log.notes == ("line 6, the last one, is cut off and was left out",)
    path.write_text(text.replace('{"step": 3', '{"step": ', 1))
    with pytest.raises(InvalidInput, match=r"line 3: is not JSON"):
        one(path)


def test_events_that_are_torn_or_damaged_are_noted(tmp_path: Path) -> None:
    """The reader ends at the damage as at the end of the file: a third of a run must not pass for all of it."""
    path = write_nemo_events(tmp_path)
    path = path if path.is_file() else next(path.glob("*tfevents*"))
    assert one(path).notes == ()
    whole = path.read_bytes()
    middle = len(whole) // 2
    damaged = whole[:middle] + bytes(b ^ 255 for b in whole[middle : middle + 4]) + whole[middle + 4 :]
    for data in (whole[:-5], damaged):
        path.write_bytes(data)
        log = one(path)
        assert any("is damaged or still being written" in note for note in log.notes)


def test_numbers_that_are_not_finite_are_gaps_and_noted(tmp_path: Path) -> None:
    rows = trl_rows()
    rows[1]["reward"] = float("nan")
    rows[2]["completions/mean_length"] = "NaN"
    rows[3]["reward"] = None
    rows[4]["completions/mean_length"] = float("inf")
    log = one(state(tmp_path, rows))
    assert "reward is not a finite number in 2 entries; the value before stands in" in log.notes
    assert (
        "completions/mean_length is not a finite number in 2 entries; the value before stands in" in log.notes
    )
    assert len(record(state(tmp_path, rows)).curves["native"]) == 4


def test_text_where_a_number_should_be_is_a_gap_and_noted(tmp_path: Path) -> None:
    gap = "completions/mean_length is not a finite number in 1 entries; the value before stands in"
    rows = trl_rows()
    rows[1]["completions/mean_length"] = "1,234.5"
    log = one(state(tmp_path, rows))
    assert gap in log.notes
    (tmp_path / "w.csv").write_text(
        '_step,reward,completions/mean_length,name\n1,0.5,"1,234.5",a\n2,0.3,20,b\n'
    )
    log = one(tmp_path / "w.csv")
    assert gap in log.notes
    assert log.unknown_keys == ()
    assert "name" not in log.raw


def test_a_key_without_any_number_is_noted(tmp_path: Path) -> None:
    rows = [{**r, "completions/mean_length": float("nan")} for r in trl_rows()]
    log = one(state(tmp_path, rows))
    assert "completions/mean_length is a finite number in no entry; taken as not logged" in log.notes


def test_a_name_with_two_values_is_refused(tmp_path: Path) -> None:
    twice = '{"step": 1, "reward": 0.1, "completions/mean_length": 9, "completions/mean_length": 90}'
    (tmp_path / "s.json").write_text('{"log_history": [' + twice + "]}")
    (tmp_path / "l.jsonl").write_text('{"step": 0, "reward": 0.1}\n' + twice + "\n")
    (tmp_path / "c.csv").write_text("step,completions/mean_length,completions/mean_length\n1,9,90\n")
    for name in ("s.json", "l.jsonl", "c.csv"):
        with pytest.raises(InvalidInput, match=r"completions/mean_length' (has two values|appears twice)"):
            one(tmp_path / name)
    (tmp_path / "s.json").write_text('{"log_history": [' + twice.replace("90", "9") + "]}")
    assert one(tmp_path / "s.json").series["completion_mean"][0] == 9


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ([{"step": 1, "loss": 1.0, "mean_token_accuracy": 0.5, "num_tokens": 100.0}], "an SFT run"),
        ([{"step": 1, "loss": 1.0, "rewards/chosen": 0.5, "rewards/margins": 0.1}], "a DPO run"),
        ([{"step": 1, "loss": 1.0, "rewards/chosen": 0.5, "kl": 0.1, "logps/chosen": -3.0}], "a DPO run"),
    ],
)
def test_runs_of_other_kinds_are_named(tmp_path: Path, rows: list[dict[str, Any]], what: str) -> None:
    path = state(tmp_path, rows)
    with pytest.raises(InvalidInput, match=rf"is the log of {what}, which generates nothing"):
        one(path)
    with pytest.raises(InvalidInput, match=what):
        importer_for(path)


def test_a_log_of_nobody_says_what_it_found(tmp_path: Path) -> None:
    path = state(tmp_path, [{"step": 1, "loss": 1.0, "grad_norm": 2.0}])
    with pytest.raises(InvalidInput, match=r"keys of no trainer known here \(found grad_norm, loss, step\)"):
        one(path)
    with pytest.raises(InvalidInput, match=r"has no key of verl; allowed is one of its logs"):
        one(write_trl(tmp_path), format="verl")


def test_unknown_keys_are_listed_and_do_no_harm(tmp_path: Path) -> None:
    rows = [{**r, "my/metric": 3.0, "note": "text", "flag": True, "list": [1]} for r in trl_rows()]
    log = one(state(tmp_path, rows))
    assert log.unknown_keys == ("my/metric",)
    assert priced(log).flops == priced(one(state(tmp_path, trl_rows()))).flops


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "completions/mean_length",
            -3.0,
            r"step 3, completions/mean_length: found -3; allowed is a number from 0",
        ),
        (
            "frac_reward_zero_std",
            34.0,
            r"step 3, frac_reward_zero_std: found 34; allowed is a number from 0 to 1",
        ),
        ("num_tokens", -1.0, r"num_tokens: found -1"),
        ("step", 2.5, r"entry 3.*: found step 2.5; allowed is a whole number"),
        ("step", -1, r"entry 3.*: found step -1"),
    ],
)
def test_impossible_numbers_are_refused(tmp_path: Path, key: str, value: float, message: str) -> None:
    rows = trl_rows()
    rows[2][key] = value
    with pytest.raises(InvalidInput, match=message):
        one(state(tmp_path, rows))


def test_packed_files_and_pickles_stay_closed(tmp_path: Path) -> None:
    bomb = tmp_path / "export.csv"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("export.csv", b"0" * 10**7)
    packed = tmp_path / "trainer_state.json"
    packed.write_bytes(gzip.compress(b"0" * 10**6))
    pickled = tmp_path / "log.jsonl"
    pickled.write_bytes(b"\x80\x04K\x01.")
    for path, what in ((bomb, "a zip archive"), (packed, "a gzip file"), (pickled, "a pickle")):
        with pytest.raises(InvalidInput, match=rf"is {what}.* (not|never) opened"):
            one(path)
        assert not importer_for_or_none(path)
    (tmp_path / "run").mkdir()
    args = tmp_path / "training_args.bin"
    args.write_bytes(b"\x80\x04K\x01.")
    log = write_trl(tmp_path / "run")
    with pytest.raises(InvalidInput, match=r"^config: .*training_args.bin: is a pickle and is never opened"):
        one(log, config=args)


def importer_for_or_none(path: Path) -> bool:
    from race.importers import IMPORTERS

    return any(importer.recognises(path) for importer in IMPORTERS.values())


def test_a_file_of_two_gigabytes_is_refused_without_reading_it(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    with path.open("wb") as file:
        file.write(b'{"log_history": [\n' + b" " * 2**17)
        file.truncate(2**31)
    with pytest.raises(
        InvalidInput, match=r"has 2,048 MiB; allowed are 256 MiB .*JSON lines, which are streamed"
    ):
        one(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("   \n", "is empty"),
        ("{}", "JSON without log entries"),
        ("[]", "keys of no trainer"),
        ("[1, 2]", "found no line of metrics|allowed is an object"),
        ('{"log_history": 3}', "log_history: found int; allowed is a list"),
        ('{"log_history": []}', "keys of no trainer|no entry of a training step"),
        ('{"log_history": [[]]}', r"entry 1: found list; allowed is an object"),
        ('{"log_history": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
        ('{"log_history": [{"step": ' + "9" * 10_000 + "}]}", "thousands of digits"),
        ("\ufeff", "is empty|found no line"),
        ("just prose\nand more\n", "found no line of metrics"),
    ],
)
def test_files_that_are_no_logs_are_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput, match=message) as caught:
        one(path)
    assert "\n" not in str(caught.value)


def test_folders_of_runs_and_checkpoints(tmp_path: Path) -> None:
    for step in (2, 10):
        (tmp_path / f"checkpoint-{step}").mkdir()
        rows = [r for r in trl_rows() if r["step"] <= step]
        state(tmp_path / f"checkpoint-{step}", rows)
    assert one(tmp_path).total_steps == 6
    events = tmp_path / "events"
    events.mkdir()
    write_nemo_events(events)
    assert one(events).container == "TensorBoard events"
    (tmp_path / "nothing").mkdir()
    with pytest.raises(InvalidInput, match="is a folder without a log"):
        one(tmp_path / "nothing")


# Facts beside the log


def test_a_model_saved_in_a_checkpoint_has_the_name_of_its_run(tmp_path: Path) -> None:
    folder = tmp_path / "my-run" / "checkpoint-6"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text((Path(__file__).parent / "tiny_config.json").read_text())
    log = one(state(folder, trl_rows()))
    assert card_of(log, given=KNOWN, defaults=key_tables()["trl"].defaults).model == "my-run"


def test_the_config_beside_the_log_settles_the_recipe(tmp_path: Path) -> None:
    path = write_trl(tmp_path)
    args = {
        "num_generations": 4, "generation_batch_size": 32, "steps_per_generation": 4, "gradient_accumulation_steps": 4,
        "num_iterations": 1, "beta": 0.0, "use_vllm": False, "gradient_checkpointing": True, "seed": 7,
        "mask_truncated_completions": False,
    }  # fmt: skip
    (tmp_path / "training_args.json").write_text(json.dumps(args))
    (tmp_path / "adapter_config.json").write_text(
        json.dumps(
            {
                "peft_type": "LORA",
                "r": 8,
                "target_modules": ["q_proj", "v_proj"],
                "base_model_name_or_path": "qwen2.5-1.5b",
            }
        )
    )
    (found,) = import_log(path, reward="sparse")
    recipe = found.spec.recipe
    assert (found.spec.model, found.spec.seed) == ("qwen2.5-1.5b", 7)
    assert (recipe.prompts_per_step, recipe.group_size, recipe.gradient_checkpointing) == (8, 4, True)
    assert recipe.lora is not None
    assert (recipe.lora.rank, recipe.lora.targets) == (8, ("q_proj", "v_proj"))
    assert recipe.prompt_tokens == pytest.approx(100)
    assert len(found.provenance["assumptions"]) == 1  # the spread of lengths


@pytest.mark.parametrize(
    ("write", "name", "text", "prompts"),
    [
        (write_verl_jsonl, "config.yaml", "actor_rollout_ref: {rollout: {n: 4}, "
         "model: {path: qwen2.5-1.5b, lora_rank: 0}}\ndata: {train_batch_size: 8}\n", 8),
        (write_openrlhf, "args.json", '{"n_samples_per_prompt": 4, "rollout_batch_size": 8, "lora_rank": 0, '
         '"pretrain": "qwen2.5-1.5b"}', 8),
        (write_prime_rl, "rl.toml", 'group_size = 4\n[model]\nname = "qwen2.5-1.5b"\n', 8),
        (write_nemo_events, "config.yaml", "grpo: {num_generations_per_prompt: 4, num_prompts_per_step: 8}\n"
         "policy: {model_name: qwen2.5-1.5b}\n", 8),
    ],
)  # fmt: skip
def test_configs_of_the_other_trainers(
    tmp_path: Path, write: Any, name: str, text: str, prompts: int
) -> None:
    path = write(tmp_path)
    (tmp_path / name).write_text(text)
    (found,) = import_log(path, reward="sparse")
    assert found.spec.model == "qwen2.5-1.5b"
    assert (found.spec.recipe.group_size, found.spec.recipe.prompts_per_step) == (4, prompts)
    assert found.spec.recipe.lora is None


def test_the_config_that_wandb_keeps(tmp_path: Path) -> None:
    model = {"model_type": "qwen2", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
             "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 1024, "tie_word_embeddings": True,
             "_name_or_path": "some/model"}  # fmt: skip
    args = {"num_generations": 4, "generation_batch_size": 32, "steps_per_generation": 4, "num_iterations": 1,
            "gradient_accumulation_steps": 4, "use_vllm": True, "gradient_checkpointing": True}  # fmt: skip
    values = {
        "_wandb": {"value": {"cli_version": "0.25"}},
        **{k: {"value": v} for k, v in {**model, **args}.items()},
    }
    path = write_trl_console(tmp_path)
    (tmp_path / "config.yaml").write_text(json.dumps(values))  # JSON is YAML
    card = card_of(one(path), given={"reward": "sparse", "lora_rank": 0})
    assert (card.model, card.architecture.layers, card.values["group_size"]) == ("some/model", 2, 4)
    assert card.values["checkpointing"] is True
    assert card.tokens["samples"] == 6 * 32


def test_a_damaged_config_is_named(tmp_path: Path) -> None:
    path = write_trl(tmp_path)
    for name, text in (("a.json", "{"), ("a.toml", "= 1"), ("a.yaml", "a: [1"), ("b.json", "[1]")):
        (tmp_path / name).write_text(text)
        with pytest.raises(InvalidInput, match=rf"^config: .*{name}: ") as caught:
            one(path, config=tmp_path / name)
        assert "\n" not in str(caught.value)
    (tmp_path / "training_args.json").write_text('{"num_generations": "many"}')
    with pytest.raises(
        InvalidInput, match=r"^training_args.json: num_generations: found 'many'; allowed is a whole"
    ):
        priced_with_config(path)


def priced_with_config(path: Path) -> Card:
    return card_of(one(path), "qwen2.5-1.5b", given={"reward": "sparse", "lora_rank": 0})


# Records


def test_a_record_is_priced_on_the_logged_lengths(tmp_path: Path) -> None:
    found = record(write_verl_jsonl(tmp_path))
    log = one(write_verl_jsonl(tmp_path))
    assert found.flops == priced(log).flops
    low, high = found.provenance["flops_range"]
    assert low <= found.flops.total <= high
    curve = found.curves["native"]
    assert curve.value[-1] == pytest.approx(0.42)
    assert curve.flops[-1] == pytest.approx(float(found.flops.total))
    assert found.provenance["series"] == {"native": "critic/rewards/mean"}
    assert found.seconds["learning"] == 90
    assert found.spec.recipe.kl


def test_rewards_on_another_scale_are_normalised_and_the_range_is_noted(tmp_path: Path) -> None:
    rows = [{**r, "reward": 3 * r["reward"] - 1} for r in trl_rows()]
    path = state(tmp_path, rows)
    found = record(path)
    assert found.curves["native"].value[0] == 0
    assert found.curves["native"].value[-1] == 1
    assert found.provenance["native_range"] == pytest.approx([-0.25, 0.5])
    assert "not the scale of the reward" in found.provenance["native_range_from"]
    given = record(path, native_range=(-1.0, 2.0))
    assert given.curves["native"].value[0] == pytest.approx(0.25)
    assert given.provenance["native_range_from"] == "given"
    with pytest.raises(InvalidInput, match=r"^native_range: found 0 to 1, but reward goes from -0.25"):
        record(path, native_range=(0.0, 1.0))


def test_a_target_is_read_from_the_key_that_is_named(tmp_path: Path) -> None:
    path = write_trl(tmp_path)
    found = record(path, series={"pass@1:gsm8k": "rewards/accuracy_reward/mean"})
    assert set(found.curves) == {"native", "pass@1:gsm8k"}
    with pytest.raises(InvalidInput, match=r"^series: 'eval/x' is not in .*\(.*rewards/accuracy_reward/mean"):
        record(path, series={"pass@1:gsm8k": "eval/x"})


def test_long_curves_are_averaged_in_blocks(tmp_path: Path) -> None:
    rows = [{**trl_rows()[0], "step": s, "num_tokens": 9920.0 * s, "reward": 0.5} for s in range(1, 1001)]
    found = record(state(tmp_path, rows))
    curve = found.curves["native"]
    assert len(curve) <= 400
    assert set(curve.value) == {0.5}
    assert curve.step[-1] == found.steps == 1000


def test_wandb_and_state_of_one_run_give_the_same_flops(tmp_path: Path) -> None:
    assert record(write_trl_wandb_csv(tmp_path)).flops == record(write_trl(tmp_path)).flops


# Key tables


@pytest.mark.parametrize("table", key_tables().values(), ids=lambda t: t.trainer)
def test_a_key_means_one_thing(table: Any) -> None:
    spelled = [key.key for f in table.fields for key in f.keys]
    assert len(spelled) == len(set(spelled))
    assert all(f.note for f in table.fields)
    assert len({f.name for f in table.fields}) == len(table.fields)


def test_wildcards_need_something_to_stand_for() -> None:
    key = Key("train/agg/*/reward/mean")
    assert key.find(["train/agg/all/x/reward/mean", "train/agg//reward/mean", "train/agg/reward/mean"]) == [
        "train/agg/all/x/reward/mean"
    ]


def test_samples_use_the_keys_of_the_tables() -> None:
    for trainer, rows in (
        ("trl", trl_rows()),
        ("verl", verl_rows()),
        ("openrlhf", openrlhf_rows()),
        ("nemo-rl", nemo_rows()),
    ):
        assert key_tables()[trainer].unknown(rows[0]) == ()


def test_every_key_that_is_read_is_documented() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, root / "docs" / "log_formats.py", "--check"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    page = (root / "docs" / "log-formats.md").read_text(encoding="utf-8")
    for table in key_tables().values():
        for field in table.fields:
            assert all(f"`{key.key}`" in page for key in field.keys)
        for _, paths in table.config:
            assert all(f"`{path}`" in page for path in paths)


def test_every_setting_that_code_asks_for_is_in_a_table() -> None:
    """A fact that no table fills could never be settled by a config."""
    cards = Path(__file__).parents[2] / "race" / "cards"
    code = "".join(path.read_text(encoding="utf-8") for path in cards.glob("*.py"))
    asked = set(re.findall(r'(?:whole|_flag|_source)\(e, "(\w+)"\)|e\.config\("(\w+)"\)', code))
    names = {a or b for a, b in asked}
    filled = {name for table in key_tables().values() for name, _ in table.config}
    beside = {"adapter", "architecture", "full_weights", "pickled"}
    assert len(names) > 15
    assert names - filled <= beside
    records = (cards.parent / "importers" / "_records.py").read_text(encoding="utf-8")
    assert not [name for name in filled if f'"{name}"' not in code + records]  # nor is any entry a promise


def test_ten_thousand_steps_are_read_and_priced_in_two_seconds(tmp_path: Path) -> None:
    row = trl_rows()[0]
    rows = [{**row, "step": s, "num_tokens": 9920.0 * s} for s in range(1, 10_001)]
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps({"log_history": rows}, indent=2))
    assert path.read_text().count("\n") > 200_000
    start = time.process_time()  # of this process: what else the machine does is not the point
    card = priced(one(path))
    assert time.process_time() - start < 2
    assert card.log.total_steps == 10_000
    assert len(card.curve()) <= 200
