"""llama-cpp-python as the judge needs it: rows of logits for chosen batches, pieces, grammars. In the child process only."""

import ctypes
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np
import numpy.typing as npt

from agent_ab.judge.case import Loading
from agent_ab.model import Json

Rows = npt.NDArray[np.float32]
_KV_TYPES = {
    "f32": lib.GGML_TYPE_F32,
    "f16": lib.GGML_TYPE_F16,
    "bf16": 30,
    "q8_0": lib.GGML_TYPE_Q8_0,
    "q4_0": lib.GGML_TYPE_Q4_0,
    "q4_1": lib.GGML_TYPE_Q4_1,
    "iq4_nl": lib.GGML_TYPE_IQ4_NL,
    "q5_0": lib.GGML_TYPE_Q5_0,
    "q5_1": lib.GGML_TYPE_Q5_1,
}
_TRIGGER_TOKEN, _TRIGGER_WORD, _TRIGGER_PATTERN = range(3)
"""llama.cpp's common_grammar_trigger_type; the fourth is a pattern for the whole text."""
_LOG_ERROR = 4
"""ggml_log_level."""
_REGEX_SPECIAL = frozenset(r".^$|()*+?[]{}\\")


class LoadError(Exception):
    """The model or its context cannot be made."""


def _errors_only(level: int, text: bytes, _user_data: object) -> None:
    # Whole graphs are told at the lower levels, far more than is kept of a child's output.
    if level == _LOG_ERROR:
        sys.stderr.write(text.decode("utf-8", "replace"))


_TELL = lib.llama_log_callback(_errors_only)
"""Kept, since llama.cpp holds no reference to it."""


def _load_backends() -> None:
    """Load the compute backends of builds that keep each in a library of its own, as llama-server does at its start."""
    folder = Path(os.environ["LLAMA_CPP_LIB_PATH"])
    ggml = ctypes.CDLL(str(folder / "libggml.so"))
    ggml.ggml_backend_dev_count.restype = ctypes.c_size_t
    if ggml.ggml_backend_dev_count() == 0:
        ggml.ggml_backend_load_all_from_path(str(folder).encode())


class Binding:
    """A loaded model with one context and one sequence."""

    def __init__(self, loading: Loading) -> None:
        """Load the model as the server loads it, without its MTP head. Raises LoadError."""
        lib.llama_log_set(_TELL, None)
        lib.llama_backend_init()
        _load_backends()
        params = lib.llama_model_default_params()
        params.n_gpu_layers = loading.gpu_layers
        self._model = lib.llama_model_load_from_file(loading.model.encode(), params)
        if not self._model:
            raise LoadError(f"llama-cpp-python cannot load {loading.model}")
        self._vocab = lib.llama_model_get_vocab(self._model)
        self._n_batch = loading.batch
        self._context = self._make_context(loading)
        self._memory = lib.llama_get_memory(self._context)
        self._read: list[int] = []
        self._prompt: tuple[list[int], Rows] | None = None
        self.size = int(lib.llama_vocab_n_tokens(self._vocab))
        self.pieces = [self._piece(token) for token in range(self.size)]
        self.ends = tuple(t for t in range(self.size) if lib.llama_vocab_is_eog(self._vocab, t))
        self.suppressed = self._suppressed()
        self._data = (lib.llama_token_data * self.size)()
        self._ids = np.arange(self.size, dtype=np.int32)

    def _make_context(self, loading: Loading) -> Any:
        params = lib.llama_context_default_params()
        params.n_ctx = loading.context
        params.n_batch = loading.batch
        params.n_ubatch = loading.ubatch
        params.n_seq_max = 1
        params.n_threads = params.n_threads_batch = loading.threads
        params.type_k, params.type_v = _KV_TYPES[loading.kv_type_k], _KV_TYPES[loading.kv_type_v]
        params.flash_attn_type = int(loading.flash_attention)
        # A window that forgets could not go back; what is attended to is the same.
        params.swa_full = True
        params.no_perf = True
        context = lib.llama_init_from_model(self._model, params)
        if not context:
            raise LoadError(f"no context of {loading.context} tokens fits for {loading.model}")
        return context

    def _piece(self, token: int) -> bytes:
        buffer = ctypes.create_string_buffer(64)
        size = lib.llama_token_to_piece(self._vocab, token, buffer, 64, 0, True)
        if size < 0:
            buffer = ctypes.create_string_buffer(-size)
            size = lib.llama_token_to_piece(self._vocab, token, buffer, -size, 0, True)
        return buffer.raw[: max(size, 0)]

    def _suppressed(self) -> tuple[int, ...]:
        count = ctypes.c_int32(0)
        tokens = lib.llama_vocab_get_suppress_tokens(self._vocab, ctypes.byref(count))
        return tuple(tokens[i] for i in range(count.value)) if tokens else ()

    def tokenize(self, text: str, whole: bool) -> list[int]:
        """Cut `text`; `whole` prompts may begin with special tokens of the model, and hold special tokens by name."""
        data = text.encode("utf-8", "surrogatepass")
        room = len(data) + 8
        buffer = (lib.llama_token * room)()
        count = lib.llama_tokenize(self._vocab, data, len(data), buffer, room, whole, True)
        return list(buffer[: max(count, 0)])

    def begin(self, prompt: Sequence[int]) -> Rows:
        """Go back to the end of `prompt`, or read it anew in the server's batches; return the row that follows it."""
        prompt = list(prompt)
        row = self._back_to(prompt)
        if row is not None:
            return row
        lib.llama_memory_clear(self._memory, True)
        self._read = []
        row = np.zeros(0, np.float32)
        for start in range(0, len(prompt), self._n_batch):
            part = prompt[start : start + self._n_batch]
            last = start + len(part) == len(prompt)
            rows = self._decode(part, [len(part) - 1] if last else [])
            row = rows[0] if last else row
        self._prompt = prompt, row
        return row

    def _back_to(self, prompt: list[int]) -> Rows | None:
        if self._prompt is None or self._read[: len(prompt)] != prompt:
            return None
        surplus = len(self._read) - len(prompt)
        if prompt == self._prompt[0]:
            return self._prompt[1] if surplus == 0 or self.rewind(surplus) else None
        # The row comes with reading the last token again.
        return self.feed(prompt[-1:])[0] if self.rewind(surplus + 1) else None

    def feed(self, tokens: Sequence[int]) -> Rows:
        """Read `tokens` in one batch and return the row that follows each of them."""
        return self._decode(tokens, range(len(tokens)))

    def rewind(self, count: int) -> bool:
        """Forget the last `count` tokens; return False when this model's memory cannot."""
        start = len(self._read) - count
        if not lib.llama_memory_seq_rm(self._memory, 0, start, -1):
            return False
        del self._read[start:]
        return True

    def _decode(self, tokens: Sequence[int], wanted: Sequence[int] | range) -> Rows:
        batch = lib.llama_batch_init(len(tokens), 0, 1)
        try:
            batch.n_tokens = len(tokens)
            for i, token in enumerate(tokens):
                batch.token[i], batch.pos[i] = token, len(self._read) + i
                batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
                batch.logits[i] = i in wanted
            status = lib.llama_decode(self._context, batch)
            if status:
                raise LoadError(f"llama_decode answered {status} after {len(self._read)} tokens")
        finally:
            lib.llama_batch_free(batch)
        self._read += tokens
        rows = np.empty((len(wanted), self.size), np.float32)
        for row, i in zip(rows, wanted, strict=True):
            row[:] = np.ctypeslib.as_array(lib.llama_get_logits_ith(self._context, i), (self.size,))
        return rows

    # ---- grammars

    def grammar(self, settings: Mapping[str, Json], prefilled: bool) -> "Grammar | None":
        """Return the request's grammar; `prefilled`: past the generation prompt. None when it does not fit."""
        text = str(settings.get("grammar") or "").encode()
        if text.startswith(b"%llguidance"):
            return None
        if settings.get("grammar_lazy"):
            return self._lazy(text, settings.get("grammar_triggers", ()))
        made = self.eager(text)
        before = self.tokenize(str(settings.get("generation_prompt", "")), False) if prefilled else []
        if made is not None and not all(made.accept(token) for token in before):
            made.close()
            return None
        return made

    def eager(self, text: bytes) -> "Grammar | None":
        """Return a grammar that holds from the first token on; None when llama.cpp cannot read it."""
        pointer = lib.llama_sampler_init_grammar(self._vocab, text, b"root")
        return Grammar(self, pointer) if pointer else None

    def _lazy(self, text: bytes, told: Sequence[Mapping[str, Json]]) -> "Grammar | None":
        """Return a grammar that holds once one of its triggers has been said."""
        trigger = Trigger.of(text, told)
        if trigger is None:
            return None
        patterns = [pattern.pattern.encode() for pattern in trigger.patterns]
        words = (ctypes.c_char_p * max(1, len(patterns)))(*patterns)
        ids = (lib.llama_token * max(1, len(trigger.tokens)))(*trigger.tokens)
        pointer = lib.llama_sampler_init_grammar_lazy_patterns(
            self._vocab, text, b"root", words, len(patterns), ids, len(trigger.tokens)
        )
        return Grammar(self, pointer, trigger) if pointer else None

    def apply(self, sampler: Any, tokens: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        """Return which of `tokens` a grammar's present state lets through."""
        view = np.frombuffer(self._data, dtype=_TOKEN_DATA)[: tokens.size]
        view["id"], view["logit"], view["p"] = tokens, 1.0, 0.0
        array = lib.llama_token_data_array(self._data, tokens.size, -1, False)
        lib.llama_sampler_apply(sampler, ctypes.byref(array))
        return np.asarray(view["logit"] > -np.inf)

    def everything(self) -> npt.NDArray[np.int32]:
        """Return the ids of the whole vocabulary."""
        return self._ids


_TOKEN_DATA = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


@dataclass(frozen=True, slots=True)
class Trigger:
    """What makes a lazy grammar begin."""

    text: bytes
    """The grammar."""
    patterns: tuple[re.Pattern[str], ...]
    tokens: tuple[int, ...]

    @classmethod
    def of(cls, text: bytes, told: Sequence[Mapping[str, Json]]) -> "Trigger | None":
        """Read `grammar_triggers`; None when one of them is no regular expression."""
        patterns: list[str] = []
        tokens: list[int] = []
        for trigger in told:
            kind, value = trigger.get("type"), str(trigger.get("value", ""))
            if kind == _TRIGGER_TOKEN:
                tokens.append(int(trigger["token"]))
            elif kind == _TRIGGER_WORD:
                patterns.append("".join(f"\\{c}" if c in _REGEX_SPECIAL else c for c in value))
            elif kind == _TRIGGER_PATTERN:
                patterns.append(value)
            else:
                patterns.append(f"^{value.removeprefix('^').removesuffix('$')}$")
        try:
            return cls(text, tuple(map(re.compile, patterns)), tuple(tokens))
        except re.error:
            return None

    def begin(self, text: str, token: int, before: int) -> int | None:
        """Return at which character of `text`, of which `token` is the end from `before` on, the grammar begins."""
        found = [match.start(1 if match.lastindex else 0) for p in self.patterns if (match := p.search(text))]
        return min([*found, *([before] if token in self.tokens else [])], default=None)


class Grammar:
    """One grammar's state after some tokens."""

    def __init__(self, binding: Binding, pointer: Any, trigger: Trigger | None = None) -> None:
        """Take over `pointer`."""
        self._binding, self._pointer, self._waiting = binding, pointer, trigger
        self._said: list[int] = []

    def allows(self, token: int) -> bool:
        """Return whether the grammar lets `token` follow."""
        return bool(self._binding.apply(self._pointer, np.array([token], np.int32))[0])

    def mask(self) -> npt.NDArray[np.bool_]:
        """Return for every token whether the grammar lets it follow."""
        return self._binding.apply(self._pointer, self._binding.everything())

    def accept(self, token: int) -> bool:
        """Go on past `token`; False, and no step, when the grammar forbids it: llama.cpp would end the process."""
        if not self.allows(token) or (self._waiting is not None and not self._survives(token, self._waiting)):
            return False
        lib.llama_sampler_accept(self._pointer, token)
        return True

    def _survives(self, token: int, trigger: Trigger) -> bool:
        """Return whether a waiting grammar, should `token` begin it, takes what has been said since its trigger."""
        pieces = [self._binding.pieces[said].decode("utf-8", "replace") for said in (*self._said, token)]
        begin = trigger.begin("".join(pieces), token, sum(map(len, pieces[:-1])))
        self._said.append(token)
        if begin is None:
            return True
        self._waiting = None
        starts = [sum(map(len, pieces[:at])) for at in range(len(pieces))]
        trial = self._binding.eager(trigger.text) if begin in starts else None
        if trial is None:
            return False
        fits = all(trial.accept(said) for said in self._said[starts.index(begin) :])
        trial.close()
        return fits

    def close(self) -> None:
        """Free it."""
        if self._pointer:
            lib.llama_sampler_free(self._pointer)
            self._pointer = None
