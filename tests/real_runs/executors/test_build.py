"""Executors from words and TOML, and what is wrong with them in one line."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jobs import job, simulated

from race.errors import CannotDo, InvalidInput
from real_runs.executors import Executor, build_executor
from real_runs.executors.command import CommandExecutor
from real_runs.executors.limits import Limits
from real_runs.executors.local import LocalExecutor, as_toml, gpu_groups
from real_runs.executors.simulated import SimulatorExecutor
from real_runs.executors.template import filled, parse_command, reads_stdin


def test_words_and_tables() -> None:
    local = build_executor("local:3")
    assert isinstance(local, LocalExecutor)
    assert (local.slots, local.name) == (3, "local")
    assert build_executor("local").slots == 1
    assert build_executor("local", slots=4).slots == 4
    assert build_executor("local:2", slots=4).slots == 2
    assert build_executor({"kind": "local", "gpus": [0, 1, 2, 3], "gpus_per_run": 2}).slots == 2
    simulator = build_executor({"kind": "simulator", "world": "own-1", "slots": 8})
    assert isinstance(simulator, SimulatorExecutor)
    assert simulator.slots == 8
    assert isinstance(build_executor("command:python train.py {spec}"), CommandExecutor)
    for each in (local, simulator):
        assert isinstance(each, Executor)


def test_a_toml_file(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(
        '[executor]\nkind = "command"\ncommand = "true {spec}"\nslots = 8\ntimeout = "4h"\nretries = 0\n'
        'grace = 5\ncwd = "work"\n[executor.env]\nTOKENS = 3\n'
    )
    executor = build_executor(str(file))
    assert isinstance(executor, CommandExecutor)
    assert executor.slots == 8
    assert executor.limits == Limits(timeout=4 * 3600, retries=0, grace=5)
    assert executor._cwd == tmp_path / "work"


WRONG = {
    "magic": "executor: found 'magic'; allowed are local:N",
    "local:": "allowed is a number of processes",
    "local:0": "allowed is a number of processes",
    "local:two": "allowed is a number of processes",
    "simulator": "allowed is simulator:<world>",
    "simulator:mars": "world: found 'mars'",
    "simulator:posterior-x": "posterior-<number>",
    "command:": "command: found ''",
    "command:python 'train.py": "close the quote",
    "command:python {specs}": r"found \{specs\} .* allowed are \{spec\}",
    "nowhere.toml": "cannot read nowhere.toml",
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_words(text: str) -> None:
    with pytest.raises(InvalidInput, match=WRONG[text]):
        build_executor(text)


WRONG_TABLES = [
    ({}, "executor: found None; allowed are local, simulator, command, ray"),
    ({"kind": "local", "slot": 2}, "unknown option 'slot' of local; allowed are slots"),
    ({"kind": "command"}, "executor.command: missing"),
    ({"kind": "simulator"}, "executor.world: missing"),
    ({"kind": "local", "slots": 0}, "slots: found 0"),
    ({"kind": "local", "slots": 2.5}, "slots: found 2.5"),
    ({"kind": "local", "threads": 0}, "threads: found 0"),
    ({"kind": "local", "gpus": "0,1"}, "executor.gpus: found '0,1'; allowed is a list"),
    ({"kind": "local", "warm": "no"}, "executor.warm: found 'no'; allowed is true or false"),
    ({"kind": "command", "command": "a", "warm": True}, "executor.warm: found True; allowed is a list"),
    ({"kind": "local", "gpus": [0, 0]}, "gpus: found 0, 0"),
    ({"kind": "local", "gpus": [0, 1, 2], "gpus_per_run": 2}, "allowed is a multiple"),
    ({"kind": "local", "gpus": [0], "slots": 2}, "slots: found 2 with 1 group"),
    ({"kind": "local", "timeout": "soon"}, "timeout: found 'soon'"),
    ({"kind": "local", "timeout": 0}, "timeout: found 0"),
    ({"kind": "local", "retries": -1}, "retries: found -1"),
    ({"kind": "local", "retries": True}, "retries: found True"),
    ({"kind": "command", "command": ["a", 3]}, "command: found"),
    ({"kind": "command", "command": "a", "env": "A=1"}, "executor.env: found 'A=1'"),
    ({"kind": "simulator", "world": "own-1", "delay": -1}, "delay: found -1"),
    ({"kind": "ray", "gpus": -1}, "executor.gpus: found -1"),
    ({"kind": "ray", "slots": 0}, "slots: found 0"),
]


@pytest.mark.parametrize(("table", "message"), WRONG_TABLES)
def test_wrong_tables(table: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        build_executor(table)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "ray://no-such-host.invalid:10001"])
def test_a_ray_cluster_that_does_not_answer_is_said_at_once(address: str) -> None:
    pytest.importorskip("ray", reason="Ray is not installed; pip install 'race-rl[dist]'")
    told = address if address.startswith("ray") else f"ray:{address}"
    executor = build_executor(told)
    with pytest.raises(CannotDo, match="nothing answers at"):
        executor.__enter__()
    with pytest.raises(InvalidInput, match=r"allowed are host:port"), build_executor("ray://somewhere"):
        pass


def test_places_are_filled_and_other_braces_left_alone(tmp_path: Path) -> None:
    pilot = job(tmp_path, seed=5)
    command = parse_command("run --seed={seed} '{a: 1}' {1..3} {id} --x '{model} of {budget}'")
    words = filled(command, pilot, 0)
    assert words == ["run", "--seed=5", "{a: 1}", "{1..3}", "pilot", "--x", f"nano-s of {pilot.spec.budget}"]
    assert reads_stdin(command)
    assert not reads_stdin(parse_command("run --spec={spec}"))
    assert filled(parse_command(simulated(0)), pilot, 0)[-1] == str(pilot.folder / "progress.jsonl")


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="{}\x00"), min_size=1), min_size=1))
def test_no_word_is_changed_by_a_shell(words: list[str]) -> None:
    if words[0].strip():
        assert list(parse_command(shlex.join(words))) == words


@given(
    st.dictionaries(
        st.text(max_size=8),
        st.recursive(
            st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False) | st.text(max_size=8),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
            ),
            max_leaves=8,
        ),
        max_size=4,
    )
)
def test_a_config_is_read_back_from_toml_as_it_was(config: dict[str, object]) -> None:
    assert tomllib.loads(as_toml(config)) == config


@given(st.integers(0, 12), st.integers(1, 4))
def test_gpus_are_shared_out_whole(count: int, each: int) -> None:
    if count % each:
        with pytest.raises(InvalidInput):
            gpu_groups(range(count), each)
        return
    groups = gpu_groups(range(count), each)
    assert [gpu for group in groups for gpu in group] == [str(i) for i in range(count)]
    assert all(len(group) == each for group in groups)
