"""What every command shares: the typer application, consoles, options, and how errors are told."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, cast

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup
from typer.main import get_command_from_info, get_group_from_info

from agent_ab import __version__
from agent_ab.errors import ApparatusError, UserError
from agent_ab.wording import visible

if TYPE_CHECKING:
    from agent_ab.store.store import Store

COMMANDS = {
    "pair": "pairs",
    "run": "suite",
    "gate": "gate",
    "report": "report",
    "demo": "report",
    "runs": "suite",
    "pairs": "pairs",
    "show": "pairs",
    "diff": "pairs",
    "review": "review",
    "regrade": "review",
    "bench": "bench",
    "lossless": "lossless",
    "replay": "lossless",
    "sweep": "sweep",
    "blocks": "blocks",
    "aa": "apparatus",
    "controls": "apparatus",
    "plan": "gate",
    "import": "gate",
    "export": "export",
    "bundle": "export",
    "reproduce": "export",
    "check": "tasks",
    "task": "tasks",
    "setup": "machine",
    "doctor": "machine",
}
"""Every command in the order of `--help`, and the module of this package that registers it."""


class _Commands(Mapping[str, Any]):
    """The commands, each imported when it is asked for: to import all takes ten times as long as to start one."""

    def __getitem__(self, name: str) -> Any:
        import_module(f"agent_ab.cli.{COMMANDS[name]}")
        for info in app.registered_commands:
            if name in (info.name, getattr(info.callback, "__name__", None)):
                return get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode="rich")
        (group,) = (group for group in app.registered_groups if group.name == name)
        return get_group_from_info(group, pretty_exceptions_short=False, suggest_commands=True, rich_markup_mode="rich")

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _Group(TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = cast(MutableMapping[str, Any], _Commands())


app = typer.Typer(
    cls=_Group,
    help="Change one thing about your model server: does your coding agent still fix the bugs, and do you wait less?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        # Rich's own way out has the status 1, which says REJECT.
        raise BrokenPipeError


# Names and texts that others wrote are printed as they stand: nothing in brackets or between colons is ours.
out = _Console(width=None if sys.stdout.isatty() else 100, highlight=False, markup=False, emoji=False)
err = _Console(stderr=True, highlight=False, markup=False, emoji=False)

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


def open_store(db: Path, *, to_write: bool = False) -> "Store":
    """Return the existing database at `db`. Raises UserError."""
    from agent_ab.store.store import Store

    if not db.is_file():
        raise UserError(f"{db}: no such database; `agent-ab pair --task transfer-repair` makes one")
    return Store(db, to_write=to_write)


def print_json(data: object) -> None:
    """Write `data` to standard output as JSON."""
    sys.stdout.write(json.dumps(data, indent=2) + "\n")


def run_command() -> int:
    """Run the command line and return its exit status; every error is told here, in one line."""
    try:
        return app(standalone_mode=False) or 0
    except (UserError, ApparatusError) as error:
        return _fail(str(error), 2 if isinstance(error, UserError) else 4, getattr(error, "__notes__", ()))
    except typer.Abort:
        # Ctrl-C or Ctrl-D where a question is asked.
        raise KeyboardInterrupt from None
    except USAGE_ERROR as error:
        return _fail(f"{error.format_message()} (--help tells more)", 2)


def _fail(message: str, status: int, notes: Iterable[str] = ()) -> int:
    err.print(Text.assemble(("error: ", "bold red"), visible(message)), soft_wrap=True)
    for line in (line for note in notes for line in note.splitlines()):
        err.print(Text(visible(line)), soft_wrap=True)
    return status
