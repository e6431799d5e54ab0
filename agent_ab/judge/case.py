"""What the judge is asked about one difference between two replies, and what it answers; both travel as JSON. Pure."""

from dataclasses import dataclass, field

from pydantic import TypeAdapter

from agent_ab.model import Json


@dataclass(frozen=True, slots=True)
class Loading:
    """How the judge loads the model: as the server does, so that its numbers are the server's own."""

    model: str
    context: int
    """Tokens; as many as the longest case needs."""
    batch: int
    ubatch: int
    gpu_layers: int
    """-1: all."""
    threads: int
    kv_type_k: str
    kv_type_v: str
    flash_attention: bool
    many: int
    """Tokens of a verification batch: n_max + 1."""
    places: int = 0
    """Places of a prompt at which the threshold is measured too, because the replies alone have too few."""


@dataclass(frozen=True, slots=True)
class Guess:
    """A guess at the text that was generated, when only its parts were recorded."""

    text: str
    recorded: tuple[tuple[int, int], ...]
    """Which bytes of it (from, to) were recorded; the rest are marks that the server took away."""


@dataclass(frozen=True, slots=True)
class Said:
    """One reply."""

    tokens: tuple[int, ...] | None = None
    """The tokens that were really generated, the end of the reply included; None when only the text was recorded."""
    ended: bool = True
    """The model ended the reply by itself."""
    guesses: tuple[Guess, ...] = ()
    """What may have been generated when no tokens are known, in the same order for both replies of a case."""


@dataclass(frozen=True, slots=True)
class Case:
    """One request with both replies to it."""

    id: str
    prompt: str
    """As the server rendered it."""
    prompt_tokens: int | None
    """How many tokens the server made of it."""
    settings: Json
    """The server's `generation_settings`: sampler, grammar."""
    baseline: Said
    candidate: Said


@dataclass(frozen=True, slots=True)
class TokenScore:
    """One token at one place, under the target, without speculation."""

    token: int
    piece: str
    logp: float | None
    """Natural logarithm of its probability, at temperature 1 and before the sampler cuts anything off; None: zero."""
    rank: int
    """How many tokens are more probable."""
    margin: float | None
    """Least change of logit gaps that brings it into the sampler's support: 0 inside; None: the grammar forbids it."""


@dataclass(frozen=True, slots=True)
class Outlier:
    """A token of one reply outside of the sampler's support, at its own place in that reply."""

    index: int
    arm: str
    """`candidate`, or `both` when it stands before the first difference."""
    score: TokenScore


@dataclass(frozen=True, slots=True)
class Score:
    """What the judge says of one case. Without a note and without an index the replies are equal."""

    case: str
    note: str = ""
    """Why there is no judgement; empty when there is one."""
    index: int | None = None
    """Tokens in common before the first difference."""
    before: str = ""
    """The end of what stands before it."""
    baseline: TokenScore | None = None
    candidate: TokenScore | None = None
    gap: float | None = None
    """Logit of the baseline's token minus that of the candidate's, one token at a time."""
    gap_many: float | None = None
    """The same in a batch of n_max + 1; None where the prompt itself is the prefix."""
    noise: float = 0.0
    """Largest change of a logit gap at any place of this case, from one token at a time to batches of n_max + 1."""
    positions: int = 0
    """Places at which it was measured."""
    grammar: str = ""
    """`applied`, or empty when the request has none."""
    exact: bool = True
    """The tokens were recorded; otherwise they were found anew from the text."""
    scanned: int = 0
    """Tokens of the candidate's reply that were looked at."""
    outliers: tuple[Outlier, ...] = field(default=())


CASES: TypeAdapter[tuple[Case, ...]] = TypeAdapter(tuple[Case, ...])
LOADING: TypeAdapter[Loading] = TypeAdapter(Loading)
SCORE: TypeAdapter[Score] = TypeAdapter(Score)
