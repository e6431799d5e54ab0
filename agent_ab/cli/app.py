"""What every command shares: the typer application, consoles, options, and how errors are told."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from agent_ab import __version__
from agent_ab.errors import ApparatusError, UserError
from agent_ab.store import Store
from agent_ab.wording import visible

app = typer.Typer(
    help="Change one thing about your model server: does your coding agent still fix the bugs, and do you wait less?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
out = Console(width=None if sys.stdout.isatty() else 100, highlight=False)
err = Console(stderr=True, highlight=False)

USAGE_ERROR: type[typer.BadParameter] = typer.BadParameter.__mro__[2]
"""What every usage error is (ClickException); typer carries a click of its own and does not export this class."""
ROOT = Path(__file__).resolve().parents[2]

TasksDir = Annotated[Path, typer.Option(help="Where the task directories are.")]
ProfilesDir = Annotated[Path, typer.Option(help="Where the profiles are.")]
Db = Annotated[Path, typer.Option(help="The database.")]
RunsDir = Annotated[Path, typer.Option(help="Where the evidence goes.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print data instead of tables.")]


def _version(asked: bool) -> None:
    if asked:
        out.print(f"agent-ab {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    pass


def open_store(db: Path) -> Store:
    """Return the existing database at `db`. Raises UserError."""
    if not db.is_file():
        raise UserError(f"{db}: no such database; `agent-ab pair --task transfer-repair` makes one")
    return Store(db)


def print_json(data: object) -> None:
    """Write `data` to standard output as JSON."""
    sys.stdout.write(json.dumps(data, indent=2) + "\n")


def run_command() -> int:
    """Run the command line and return its exit status; every error is told here, in one line."""
    try:
        return app(standalone_mode=False) or 0
    except (UserError, ApparatusError) as error:
        return _fail(str(error), 2 if isinstance(error, UserError) else 4, getattr(error, "__notes__", ()))
    except USAGE_ERROR as error:
        return _fail(f"{error.format_message()} (--help tells more)", 2)


def _fail(message: str, status: int, notes: Iterable[str] = ()) -> int:
    err.print(Text.assemble(("error: ", "bold red"), visible(message)), soft_wrap=True)
    for line in (line for note in notes for line in note.splitlines()):
        err.print(Text(visible(line)), soft_wrap=True)
    return status
