"""``race eval``: what a model, an adapter or a run can do, with how sure that is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from race.cli.output import JsonFlag, emit, note, table
from race.cli.run_config import parse_setting
from race.cli.runs import JudgeOption, SetOption
from race.errors import InvalidInput

if TYPE_CHECKING:
    from rich.console import Console

    from real_runs.contracts import Task
    from real_runs.evaluate import Evaluation


def evaluate(
    model: Annotated[
        str,
        typer.Argument(
            help="nano-s, a causal LM (folder or hub id), a PEFT adapter folder, or a run's folder."
        ),
    ],
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data", help="NAME or NAME=SOURCE: file, gsm8k, hub id; repeatable. Default: the run's."
        ),
    ] = None,
    problems: Annotated[int, typer.Option("--problems", min=1, help="Held-out problems of each set.")] = 500,
    samples: Annotated[
        int, typer.Option("--samples", min=1, max=1024, help="Completions for each problem.")
    ] = 1,
    greedy: Annotated[bool, typer.Option("--greedy", help="Most likely token instead of sampling.")] = False,
    judge_model: JudgeOption = None,
    settings: SetOption = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the sampling.")] = 0,
    as_json: JsonFlag = False,
) -> None:
    """pass@1 with its confidence interval, pass@k and judge of a model, an adapter or a run."""
    from dataclasses import replace

    from race.cli.live import quiet_libraries, stdout_to_stderr
    from real_runs import require_runs_extra
    from real_runs.assemble import assembled
    from real_runs.trained import evaluate_trained, evaluation_options, find_trained, load_trained, with_sets

    if greedy and samples > 1:
        raise InvalidInput(
            f"samples: found {samples} with --greedy, which always says the same; allowed is 1"
        )
    require_runs_extra()
    told: dict[str, dict[str, Any]] = {"options": {}, "data": {}, "prm": {}}
    for text in settings or []:
        where, name, value = parse_setting(text)
        if where not in told:
            raise InvalidInput(f"set: found {text!r}; allowed here are options, data.NAME and prm.NAME")
        told[where][name] = value
    sets = dict(map(_named, data or []))
    trained = find_trained(model)
    setup = with_sets(trained, sets, judge_model, told["data"])
    setup = replace(setup, prm={**setup.prm, **told["prm"]})
    options = evaluation_options(trained, told["options"])
    found: dict[str, Evaluation] = {}
    quiet_libraries()
    with stdout_to_stderr(), assembled(setup, options, train=trained.run and not sets) as parts:
        for line in parts.notes:
            note(line)
        if not trained.run:
            parts = replace(parts, reward=None)
        policy = load_trained(trained, parts.policy, options)
        tasks: dict[str, Task] = {next(iter(sets), ""): parts.task, **parts.benchmarks}
        for name, task in tasks.items():
            found[name] = evaluate_trained(
                policy, parts, task, options, problems=problems, samples=samples, seed=seed, greedy=greedy
            )
    out = {
        "model": setup.model,
        "evaluated": model,
        "adapter": None if trained.adapter is None else str(trained.adapter),
        "problems": {name or parts.task.name: result.problems for name, result in found.items()},
        "samples": samples,
        "temperature": 0.0 if greedy else options.temperature,
        "seed": seed,
        "targets": {
            f"{target}:{name}" if name else target: estimate.to_dict()
            for name, result in found.items()
            for target, estimate in result.estimates.items()
        },
        "health": {name or parts.task.name: dict(result.health) for name, result in found.items()},
        "flops": sum(result.flops for result in found.values()),
    }
    emit(out, as_json, lambda console: _render(console, out))


def _named(text: str) -> tuple[str, str]:
    name, equals, source = text.partition("=")
    return (name.strip(), source.strip()) if equals else (Path(text).stem, text)


def _render(console: Console, data: dict[str, Any]) -> None:
    counts = ", ".join(f"{n} problems of {name}" for name, n in data["problems"].items())
    how = "greedy" if data["temperature"] == 0 else f"temperature {data['temperature']:g}"
    console.print(
        f"[bold]{data['evaluated']}[/bold]: {counts}, {data['samples']} "
        f"completion{'s' if data['samples'] != 1 else ''} each, {how}"
    )
    rows = table(["target", ("value", "right"), ("95 % interval", "right"), "by level"])
    for target, value in data["targets"].items():
        levels = "  ".join(f"{level}: {share:.2f}" for level, share in value["levels"].items())
        rows.add_row(target, f"{value['value']:.3f}", f"{value['lo']:.3f} to {value['hi']:.3f}", levels)
    console.print(rows)
