"""What is on the page, as nouns and finished words: the template draws it and computes nothing."""

from collections.abc import Mapping
from dataclasses import dataclass

from agent_ab.model import Arm, Json
from agent_ab.report.page.shapes import Plot

SCHEMA = 1
"""Version of the page's embedded data: 1, the first."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What the database says of the run itself."""

    id: str
    created_at: str
    status: str
    """`running`, `finished` or `stopped`."""
    note: str
    kind: str
    """`pair`, `suite`, `aa`, `controls`, `import`."""
    profile: str
    version: str
    """Of agent_ab, when it was played."""
    plan: Json
    plan_sha256: str
    policy_sha256: str | None


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table: what it is about, then its cells."""

    label: str
    cells: tuple[str, ...]
    tone: str = ""
    """`differs`, `bad` or `good`; empty: nothing to notice."""


@dataclass(frozen=True, slots=True)
class Table:
    """A small table: its first column is a header of its rows."""

    head: tuple[str, ...]
    rows: tuple[Row, ...]
    code: bool = False
    """Cells are code: in fixed width, broken anywhere."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One arm's amount in a tile."""

    arm: Arm
    share: float
    """Of the tile's width, 0 to 1."""
    words: str


@dataclass(frozen=True, slots=True)
class Tile:
    """One of the few numbers that a reader takes away."""

    title: str
    value: str
    detail: str
    href: str
    tone: str = ""
    bars: tuple[Bar, ...] = ()


@dataclass(frozen=True, slots=True)
class Head:
    """What was asked and what the answer is."""

    run: str
    kind: str
    created_at: str
    profile: str
    change: tuple[tuple[str, str, str], ...]
    """What differs between the arms: name, baseline's, candidate's."""
    variable: str
    """The declared variable, for when no setting is known."""
    decision: str
    """The verdict's word, or what stands in its place."""
    tone: str
    """The decision in lower case, for the style."""
    lead: str
    """The sentence that decided."""
    reasons: tuple[str, ...]
    still: str
    """How much more it takes to decide, in a few words; empty when it is decided."""
    warnings: tuple[str, ...]
    labels: tuple[str, ...]
    """`imported`, `UNPROVEN`, `one pair`."""
    tiles: tuple[Tile, ...]


@dataclass(frozen=True, slots=True)
class PairRef:
    """A pair that can be opened."""

    number: int
    label: str
    """Task and seed, for whoever does not see where it stands."""


@dataclass(frozen=True, slots=True)
class Told:
    """Something to know of one pair."""

    ref: PairRef
    words: str


@dataclass(frozen=True, slots=True)
class FlipLine:
    """A check that flipped, over all pairs of its task."""

    task: str
    check_id: str
    rule: str
    broken: tuple[PairRef, ...]
    fixed: tuple[PairRef, ...]
    pairs: int
    example: str
    """What the candidate's check said in the first such pair."""
    notes: tuple[str, ...]
    """Regressed, quarantined, and what a person said of it."""


@dataclass(frozen=True, slots=True)
class GridPair:
    """A pair as a column of the grid."""

    ref: PairRef
    seed: int
    outcome: str


@dataclass(frozen=True, slots=True)
class GridRow:
    """One check over its task's pairs."""

    check_id: str
    rule: str
    cells: tuple[str, ...]
    """One a pair: baseline's letter, then candidate's: `p` pass, `f` fail, `-` not judged."""
    passed: tuple[int, int]
    judged: int
    flipped: bool


@dataclass(frozen=True, slots=True)
class GridTask:
    """One task's checks x pairs."""

    task: str
    pairs: tuple[GridPair, ...]
    rows: tuple[GridRow, ...]
    """Empty when only the counts are known."""


@dataclass(frozen=True, slots=True)
class PairLine:
    """A pair as a line of the table of pairs."""

    ref: PairRef
    name: str
    task: str
    seed: int
    repeat: int
    block: int
    first: str
    outcome: str
    tone: str
    checks: str
    wall: str
    ratio: str
    kind: str
    """Why the arms parted, in one word."""
    place: str
    """The same with the place, in a few words."""
    flips: int
    note: str
    """VOID's reason, `unproven`, `played again`."""


@dataclass(frozen=True, slots=True)
class ProofRow:
    """One line of the proof over all pairs."""

    name: str
    held: int
    of: int
    example: str
    failed: tuple[PairRef, ...]


@dataclass(frozen=True, slots=True)
class Command:
    """A command line that makes something on this page again."""

    about: str
    text: str


@dataclass(frozen=True, slots=True)
class Dossier:
    """All that the page holds of one pair, packed for the script."""

    number: int
    packed: str
    """JSON, gzip, base64."""
    evidence: str
    """`whole`, `linked` (too much for the page) or `missing`."""


@dataclass(frozen=True, slots=True)
class Page:
    """The whole page."""

    head: Head
    numbers: Table | None
    """What stands behind the verdict."""
    controls: Table | None
    flips: tuple[FlipLine, ...]
    grid: tuple[GridTask, ...]
    plots: Mapping[str, Plot]
    """By the plot's id, `wall` for `plot-wall`; what cannot be drawn is not there."""
    endings: Table
    kinds: Table | None
    pairs: tuple[PairLine, ...]
    proof: tuple[ProofRow, ...]
    voids: Table
    void_lines: tuple[PairLine, ...]
    machine: Table | None
    differences: tuple[Told, ...]
    """Where the arms of a pair met different conditions."""
    settings: Table
    stated: Table | None
    """Of imported results: what their source says besides."""
    hashes: Table
    commands: tuple[Command, ...]
    dossiers: tuple[Dossier, ...]
    made: str
    """By which version, of which database."""
