"""The header reader: right about whole files, one clear line about any other."""

import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agent_ab.errors import UserError
from agent_ab.models.gguf_header import read_header
from tests.gguf_files import HEAD, TRUNK, tiny, truncated


def complaint(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        read_header(path)
    text = str(caught.value)
    assert str(path) in text and "\n" not in text
    return text


def test_keys_and_tensor_names_are_read(tmp_path: Path) -> None:
    header = read_header(tiny(tmp_path / "m.gguf"))
    assert header.text("general.architecture") == "qwen35"
    assert header.number("qwen35.block_count") == 2
    assert header.number("qwen35.absent") == 0 and header.text("absent") == ""
    assert header.tensors == {*TRUNK, *HEAD}


def test_an_array_is_stepped_over_and_what_follows_it_is_read(tmp_path: Path) -> None:
    header = read_header(tiny(tmp_path / "m.gguf"))
    assert "tokenizer.ggml.tokens" not in header.values


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert "No such file" in complaint(tmp_path / "absent.gguf")


def test_a_directory_is_named_as_one(tmp_path: Path) -> None:
    assert "is a directory" in complaint(tmp_path)


@pytest.mark.parametrize("content", [b"", b"GG", b"<html>", b"\x7fELF" + bytes(100)])
def test_another_file_is_not_a_gguf(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    assert "is not a GGUF file" in complaint(path)


def test_a_file_cut_in_its_header_is_truncated(tmp_path: Path) -> None:
    whole = tiny(tmp_path / "m.gguf")
    for size in range(4, whole.stat().st_size - 4 * 256 * 4, 7):
        assert "truncated or damaged" in complaint(truncated(whole, tmp_path / "cut.gguf", size))


def test_a_file_cut_in_its_tensors_is_truncated_and_both_ends_are_told(tmp_path: Path) -> None:
    whole = tiny(tmp_path / "m.gguf")
    size = whole.stat().st_size
    text = complaint(truncated(whole, tmp_path / "cut.gguf", -1))
    assert f"tensors end at byte {size:,}" in text and f"the file at byte {size - 1:,}" in text


def test_an_unknown_version_is_told(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<I", 9) + bytes(100))
    assert "version 9" in complaint(path)


def test_a_vocabulary_that_claims_to_be_endless_does_not_hang(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    array = struct.pack("<Q4sIIQ", 4, b"key0", 9, 8, 2**60)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + array + bytes(1000))
    assert "goes on after the file's end" in complaint(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=200)
@given(place=st.integers(4, 420), junk=st.binary(min_size=1, max_size=12))
@example(place=8, junk=b"\xff" * 8)
def test_damage_anywhere_is_read_or_told_and_never_crashes(tmp_path: Path, place: int, junk: bytes) -> None:
    data = bytearray(tiny(tmp_path / "m.gguf").read_bytes())
    data[place : place + len(junk)] = junk
    path = tmp_path / "damaged.gguf"
    path.write_bytes(data)
    try:
        read_header(path)
    except UserError as error:
        assert str(path) in str(error)
