"""The header of a GGUF: its keys, its tensors' names and where they end, in well under a second whatever the vocabulary.

`gguf.GGUFReader` makes arrays of every token and merge, which takes many seconds for a vocabulary of 250,000.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gguf.constants import GGML_QUANT_SIZES, GGUF_DEFAULT_ALIGNMENT, GGMLQuantizationType, GGUFValueType

from agent_ab.errors import UserError

Scalar = int | float | bool | str

_FORMATS = {
    GGUFValueType.UINT8: "B",
    GGUFValueType.INT8: "b",
    GGUFValueType.UINT16: "H",
    GGUFValueType.INT16: "h",
    GGUFValueType.UINT32: "I",
    GGUFValueType.INT32: "i",
    GGUFValueType.FLOAT32: "f",
    GGUFValueType.BOOL: "?",
    GGUFValueType.UINT64: "Q",
    GGUFValueType.INT64: "q",
    GGUFValueType.FLOAT64: "d",
}
_SCALARS = {int(kind): struct.Struct("<" + code) for kind, code in _FORMATS.items()}
_LENGTH, _WORD = _SCALARS[GGUFValueType.UINT64], _SCALARS[GGUFValueType.UINT32]
_DEEPEST_ARRAY = 4


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor, as the header lists it."""

    shape: tuple[int, ...]
    """In ggml's order: the row length first."""
    offset: int
    """Where it begins in the data section."""
    size: int
    """In bytes; 0 for a quantisation newer than the gguf package."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a GGUF says about itself."""

    values: Mapping[str, Scalar]
    """Every key whose value is no array."""
    tensors: frozenset[str]
    entries: Mapping[str, Entry] = field(default_factory=dict)
    """The tensors by name; empty where only the names were put together."""

    def text(self, key: str) -> str:
        """Return a string's value, or an empty one."""
        value = self.values.get(key)
        return value if isinstance(value, str) else ""

    def number(self, key: str) -> int:
        """Return a whole number's value, or 0."""
        value = self.values.get(key)
        return value if isinstance(value, int) else 0


class _Short(Exception):
    """The file ends before its header does, or a length in it is nonsense."""


def read_header(path: Path) -> Header:
    """Read the header of a GGUF. Raises UserError: missing, a directory, unreadable, no GGUF, truncated."""
    if path.is_dir():
        raise UserError(f"the model {path} is a directory; name the .gguf file in it")
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise UserError(f"the model {path} is not a GGUF file: it does not begin with 'GGUF'")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Reader(data).header()
    except OSError as error:
        raise UserError(f"cannot read the model {path}: {error.strerror}") from None
    except _Short as error:
        raise UserError(f"the model {path} is truncated or damaged: {error}; download it again") from None


@dataclass(slots=True)
class _Reader:
    """A cursor in a mapped file."""

    data: mmap.mmap
    at: int = 4

    def header(self) -> Header:
        version = self._number(_WORD)
        if version not in (2, 3):
            raise _Short(f"GGUF version {version} is not 2 or 3")
        tensors, keys = self._number(_LENGTH), self._number(_LENGTH)
        values: dict[str, Scalar] = {}
        for _ in range(keys):
            key = self._string()
            value = self._value(self._number(_WORD), 0)
            if value is not None:
                values[key] = value
        entries = dict(self._tensor() for _ in range(tensors))
        alignment = values.get("general.alignment", GGUF_DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1:
            raise _Short(f"general.alignment is {alignment!r}")
        last = max((entry.offset + entry.size for entry in entries.values()), default=0)
        end = math.ceil(self.at / alignment) * alignment + last
        if end > len(self.data):
            raise _Short(f"its tensors end at byte {end:,}, the file at byte {len(self.data):,}")
        return Header(values, frozenset(entries), entries)

    def _skip(self, size: int) -> int:
        """Step over `size` bytes and return where they begin."""
        begin, self.at = self.at, self.at + size
        if self.at > len(self.data):
            raise _Short(f"its header goes on after the file's end at byte {len(self.data):,}")
        return begin

    def _number(self, form: struct.Struct) -> int:
        return int(form.unpack_from(self.data, self._skip(form.size))[0])

    def _string(self) -> str:
        begin = self._skip(self._number(_LENGTH))
        return self.data[begin : self.at].decode("utf-8", "replace")

    def _value(self, kind: int, depth: int) -> Scalar | None:
        """Read one value; step over an array and return None."""
        if form := _SCALARS.get(kind):
            value: Scalar = form.unpack_from(self.data, self._skip(form.size))[0]
            return value
        if kind == GGUFValueType.STRING:
            return self._string()
        if kind != GGUFValueType.ARRAY or depth > _DEEPEST_ARRAY:
            raise _Short(f"there is no value of type {kind}")
        inner, count = self._number(_WORD), self._number(_LENGTH)
        if form := _SCALARS.get(inner):
            self._skip(count * form.size)
        elif inner == GGUFValueType.STRING:
            self._skip_strings(count)
        else:
            for _ in range(count):
                self._value(inner, depth + 1)
        return None

    def _skip_strings(self, count: int) -> None:
        # The vocabulary: the one loop in here that runs half a million times.
        read, at, last = _LENGTH.unpack_from, self.at, len(self.data) - _LENGTH.size
        for _ in range(count):
            if at > last:
                break
            at += 8 + read(self.data, at)[0]
        else:
            self.at = at
            self._skip(0)
            return
        self._skip(len(self.data))

    def _tensor(self) -> tuple[str, Entry]:
        """Read one tensor's entry: its name, its shape, and where its data lies in the data section."""
        name = self._string()
        shape = tuple(self._number(_LENGTH) for _ in range(self._number(_WORD)))
        kind, offset = self._number(_WORD), self._number(_LENGTH)
        try:
            block, size = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
        except ValueError:
            # A quantisation newer than the gguf package: its size is unknown, its beginning is not.
            return name, Entry(shape, offset, 0)
        return name, Entry(shape, offset, math.prod(shape) // block * size)
