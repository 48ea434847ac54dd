"""Real runs in processes of this machine: the `command` executor with ``race run`` as its command.

Processes are forked from one that has imported torch and transformers, so that starting a pilot costs milliseconds.
Each job's run lives in ``<folder>/run``; a process killed with ``kill -9`` is started again and goes on from its last
checkpoint.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from race.errors import InvalidInput
from real_runs import require_runs_extra
from real_runs.executors._base import Job
from real_runs.executors.command import CommandExecutor
from real_runs.executors.folder import JobFolder
from real_runs.executors.limits import Limits, cores

WARM = ("race.cli.app", "race.cli.live", "real_runs.run", "real_runs.assemble", "real_runs.nano")
CONFIG_FILE = "run.toml"


class LocalExecutor(CommandExecutor):
    """``race run --spec`` in processes of this machine.

    Parameters
    ----------
    slots
        Processes at a time; default: one per group of GPUs, or one.
    gpus
        GPUs to pin processes to, through ``CUDA_VISIBLE_DEVICES``; ``gpus_per_run`` of them each.
    threads
        CPU threads of each process; default: the cores shared out evenly.
    config
        What ``race run --config`` takes (tables ``options``, ``data``, ``prm``, ...): a file, or its values.
    arguments
        Further arguments of ``race run``.
    warm
        Fork from a process that has imported everything; otherwise every run starts a new interpreter.
    """

    def __init__(
        self,
        *,
        slots: int | None = None,
        gpus: Sequence[int | str] = (),
        gpus_per_run: int = 1,
        threads: int | None = None,
        config: Path | Mapping[str, Any] | None = None,
        arguments: Sequence[str] = (),
        limits: Limits | None = None,
        warm: bool = True,
    ) -> None:
        groups = gpu_groups(gpus, gpus_per_run)
        count = slots if slots is not None else max(1, len(groups))
        if groups and isinstance(count, int) and count > len(groups):
            raise InvalidInput(
                f"slots: found {count} with {len(groups)} group(s) of {gpus_per_run} GPU(s); allowed is one each"
            )
        self._config = dict(config) if isinstance(config, Mapping) else None
        super().__init__(
            run_command(config, arguments),
            slots=count,
            limits=limits or Limits(retries=2),
            env=thread_limits(threads, count),
            per_slot=[{"CUDA_VISIBLE_DEVICES": ",".join(group)} for group in groups],
            warm=WARM if warm else (),
            ours=True,
            name="local",
        )

    def __enter__(self) -> LocalExecutor:
        require_runs_extra()
        super().__enter__()
        return self

    def submit(self, job: Job) -> None:
        """See `Executor.submit`."""
        write_config(job, self._config)
        super().submit(job)


def run_command(config: Path | Mapping[str, Any] | None, arguments: Sequence[str]) -> list[str]:
    """``race run`` as a command for the `command` executor."""
    command = [sys.executable, "-m", "race", "run", "--spec", "{spec}", "--out", "{folder}/run", "--json"]
    if config is not None:
        file = f"{{folder}}/{CONFIG_FILE}" if isinstance(config, Mapping) else str(Path(config).absolute())
        command += ["--config", file]
    if "--monitor" not in arguments:
        command += ["--monitor", "none"]
    return [*command, *arguments]


def write_config(job: Job, config: Mapping[str, Any] | None) -> None:
    """Put the values that ``race run --config`` reads into the job's folder."""
    if config is None:
        return
    folder = JobFolder.of(job)
    folder.path.mkdir(parents=True, exist_ok=True)
    (folder.path / CONFIG_FILE).write_text(as_toml(config), encoding="utf-8")


def thread_limits(threads: int | None, slots: int) -> dict[str, str]:
    """Environment that keeps pilots from taking each other's cores."""
    count = threads if threads is not None else max(1, cores() // max(slots, 1))
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 4096:
        raise InvalidInput(f"threads: found {threads!r}; allowed is a whole number from 1 to 4096")
    return {name: str(count) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}


def gpu_groups(gpus: Sequence[int | str], each: int) -> list[list[str]]:
    """GPUs shared out, ``each`` to a run; one that is left over is an error rather than idle."""
    names = [str(gpu) for gpu in gpus]
    if isinstance(each, bool) or not isinstance(each, int) or each < 1:
        raise InvalidInput(f"gpus_per_run: found {each!r}; allowed is a whole number from 1")
    if len(set(names)) != len(names) or not all(names):
        raise InvalidInput(f"gpus: found {', '.join(names)}; allowed are different numbers or GPU ids")
    if len(names) % each:
        raise InvalidInput(f"gpus: found {len(names)}, with {each} for each run; allowed is a multiple")
    return [names[i : i + each] for i in range(0, len(names), each)]


def as_toml(data: Mapping[str, Any]) -> str:
    """A mapping of plain values and of tables as TOML; deeper tables are written inline."""
    tables = {name: value for name, value in data.items() if isinstance(value, Mapping)}
    lines = [f"{_key(name)} = {_inline(value)}" for name, value in data.items() if name not in tables]
    for name, table in tables.items():
        lines += ["", f"[{_key(name)}]", *(f"{_key(key)} = {_inline(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return _text(str(name))


def _inline(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_inline(item)}" for key, item in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_inline, value)) + "]"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, (bool, int)):
        return json.dumps(value)
    if isinstance(value, float):
        return repr(value)
    raise InvalidInput(f"config: found {value!r}; allowed are numbers, texts, lists and tables")


def _text(value: str) -> str:
    """A JSON text is a TOML one, but for the one control character that JSON leaves alone."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
