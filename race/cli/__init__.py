"""The command line: RACE's composition root.

The only place that may look up from `race` to `surrogate`, `planner` and `real_runs`, and it does so lazily,
inside functions, so that ``race --help`` stays near the interpreter's own start-up time.

Exit codes: 0 done, 1 ran but could not do it (`race.errors.CannotDo`), 2 bad usage (`race.errors.InvalidInput`).
Every failure is one line on stderr.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from race.errors import RaceError


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of the ``race`` command."""
    sys.exit(run(argv))


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    import typer

    from race.cli.app import app

    # typer vendors click in newer releases and depends on it in older ones; the base class is in the mro of both.
    usage_error: type[Exception] = next(
        c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException" and issubclass(c, Exception)
    )
    command = typer.main.get_command(app)
    try:
        result = command.main(
            args=list(argv) if argv is not None else None, prog_name="race", standalone_mode=False
        )
        sys.stdout.flush()  # a full disk behind a redirection shows here, not at interpreter exit
    except RaceError as error:
        return _fail(str(error), error.exit_code)
    except typer.Abort:
        return _fail("interrupted; everything already written is kept", 1)
    except KeyboardInterrupt:
        return _fail("interrupted; everything already written is kept", 1)
    except BrokenPipeError:
        # `race plan | head` closed the pipe: not an error, but the interpreter's last flush must not meet it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _fail(f"cannot read or write{where}: {error.strerror or error}", 1)
    except usage_error as error:
        message = getattr(error, "format_message", error.__str__)()
        return _fail(f"{message} (see --help)" if message else "no command given (see --help)", 2)
    return result if isinstance(result, int) else 0


def _fail(message: str, code: int) -> int:
    print("error: " + " ".join(message.split()), file=sys.stderr)
    return code
