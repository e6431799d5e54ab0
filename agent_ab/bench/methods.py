"""Decoding methods by name: what `agent-ab bench --methods none,ngram-mod,mtp-2,eagle3` asks of the server. Pure.

A name is `none`, an n-gram type of llama-server (`ngram-mod`), or a drafting one without its `draft-`, with the number of
drafted tokens behind a dash: `mtp-2`, `eagle3-4`, `dflash`, `simple`. A profile's `[methods.NAME]` comes first, and the
number goes behind its names too.
"""

import re
from dataclasses import dataclass

from agent_ab.config import Draft, ModelFile, Profile, Speculation, nearest
from agent_ab.errors import UserError
from agent_ab.pair.speculation import BASELINE, DRAFTING, MOST, NGRAM

GENERATED = ("simple", "eagle3", "dflash")
ACCEPTANCE = 0.7
"""Of a draft that is generated for a scripted model without a word about it."""
_NAME = re.compile(r"^(?:draft-)?(?P<base>[\w.+-]*?\w)(?:-(?P<n>\d+))?$")


@dataclass(frozen=True, slots=True)
class Method:
    """One way to decode."""

    name: str
    speculation: Speculation


def parse(names: str, profile: Profile) -> tuple[Method, ...]:
    """Return the methods of a comma list, the baseline first. Raises UserError."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if BASELINE not in wanted:
        raise UserError(f"--methods {names}: {BASELINE!r} must be among them, it is the baseline of every ratio")
    twice = [name for name in wanted if wanted.count(name) > 1]
    if twice:
        raise UserError(f"--methods {names}: {twice[0]!r} is there twice")
    if wanted == [BASELINE]:
        raise UserError(f"--methods {names}: is the baseline alone; name at least one other, as in none,ngram-mod")
    wanted.sort(key=lambda name: name != BASELINE)
    return tuple(Method(name, _speculation(name, profile)) for name in wanted)


def _speculation(name: str, profile: Profile) -> Speculation:
    if name in profile.methods:
        return profile.methods[name]
    if name == BASELINE:
        return Speculation()
    if name in NGRAM:
        return Speculation(type=name)
    match = _NAME.match(name)
    base, number = (match["base"], match["n"]) if match else (name, None)
    known = [BASELINE, *NGRAM, *DRAFTING, *profile.methods]
    if number is not None and (base in DRAFTING or base in profile.methods) and not 1 <= int(number[:9]) <= MOST:
        raise UserError(f"--methods: {name!r}: between 1 and {MOST} tokens can be drafted at a time")
    if base in profile.methods:
        return profile.methods[base].model_copy(update={"n_max": int(number)} if number else {})
    if base not in DRAFTING:
        raise UserError(
            f"--methods: no method {name!r}{nearest(base, known)}; a profile can name more as [methods.NAME]"
        )
    draft = _draft(base, profile.model)
    if draft is None and base != "mtp":
        raise UserError(
            f"--methods: {name!r} drafts with a model of its own: name it in the profile, as in [methods.{base}]"
            f' type = "draft-{base}", draft = {{ path = "DRAFT.gguf" }}'
        )
    return Speculation(type=f"draft-{base}", n_max=int(number) if number else DRAFTING[base], draft=draft)


def _draft(base: str, model: ModelFile) -> Draft | None:
    """Return the draft that we can make or fetch for our own models."""
    if model.source == "scripted" and base in GENERATED:
        return Draft(source="generated", acceptance=ACCEPTANCE)
    if model.source == "smollm2-mtp" and base == "simple":
        return Draft(source="smollm2")
    return None
