"""The command table. Importing it must stay cheap: commands import what they need when they run."""

from __future__ import annotations

from typing import Annotated

import typer

from race.cli import card, evals, evidence, fit, flops, loop, plan, plot, query, report, runs, study

app = typer.Typer(
    name="race",
    help="Reward-Aware Compute Allocation: where should a fixed GRPO post-training FLOP budget go?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(version("race-rl"))
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


app.command("flops")(flops.flops)
app.command("plan")(plan.plan)
app.command("simulate")(evidence.simulate)
app.command("import")(evidence.import_log)
app.command("card")(card.card)
app.command("run")(runs.run)
app.command("loop")(loop.loop)
app.command("eval")(evals.evaluate)
app.command("fit")(fit.fit)
app.command("query")(query.query)
app.command("report")(report.report)
app.add_typer(study.app, name="study")
app.command("plot")(plot.plot)
