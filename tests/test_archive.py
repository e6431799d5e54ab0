"""An archive from elsewhere: nothing escapes it, nothing hides in it, and equal contents are equal bytes."""

import stat
import zipfile
from pathlib import Path

import pytest

from agent_ab.errors import ApparatusError
from agent_ab.export import archive
from agent_ab.export.archive import Limits, Member

MEMBERS = (Member("manifest.json", b"{}\n"), Member("runs/1/a.log", b"hello " * 50), Member("runs/1/b", b""))


def crafted(path: Path, *infos: tuple[zipfile.ZipInfo, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as made:
        for info, data in infos:
            made.writestr(info, data)
    return path


def named(name: str, mode: int = 0) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    # The constructor cuts names at a NUL and turns separators; a hostile writer does not.
    info.filename = name
    info.create_system = 3
    info.external_attr = mode << 16
    return info


def unpacked(path: Path, tmp_path: Path, limits: Limits | None = None) -> dict[str, str]:
    target = tmp_path / "target"
    target.mkdir()
    return dict(archive.unpack(path, target, limits))


def test_what_was_written_comes_out_and_equal_contents_are_equal_bytes(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"")
    for name in ("one.zip", "two.zip"):
        archive.write(tmp_path / name, (*MEMBERS[:2], Member("runs/1/b", tmp_path / "b")))
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    assert archive.sealed(tmp_path / "one.zip")
    assert unpacked(tmp_path / "one.zip", tmp_path) == {}
    for member in MEMBERS:
        assert (tmp_path / "target" / member.name).read_bytes() == member.source


def test_every_single_changed_byte_breaks_the_seal_and_none_a_traceback(tmp_path: Path) -> None:
    archive.write(tmp_path / "whole.zip", MEMBERS)
    whole = (tmp_path / "whole.zip").read_bytes()
    for position in range(len(whole)):
        changed = tmp_path / "changed.zip"
        changed.write_bytes(whole[:position] + bytes([whole[position] ^ 0x41]) + whole[position + 1 :])
        assert not archive.sealed(changed), position
        target = tmp_path / str(position)
        target.mkdir()
        try:
            archive.unpack(changed, target)
        except ApparatusError as error:
            assert "changed.zip is refused" in str(error)


@pytest.mark.parametrize("size", [0, 1, 70, 71, 200])
def test_a_cut_archive_is_refused(tmp_path: Path, size: int) -> None:
    archive.write(tmp_path / "whole.zip", MEMBERS)
    cut = tmp_path / "cut.zip"
    cut.write_bytes((tmp_path / "whole.zip").read_bytes()[:size])
    assert not archive.sealed(cut)
    with pytest.raises(ApparatusError, match=r"cut\.zip is refused: its directory is damaged"):
        unpacked(cut, tmp_path)


def test_an_archive_that_lacks_its_last_byte_has_no_seal(tmp_path: Path) -> None:
    archive.write(tmp_path / "whole.zip", MEMBERS)
    cut = tmp_path / "cut.zip"
    cut.write_bytes((tmp_path / "whole.zip").read_bytes()[:-1])
    assert not archive.sealed(cut)


@pytest.mark.parametrize(
    "name",
    [
        "../evil",
        "runs/../../evil",
        "/etc/evil",
        "..",
        "runs//evil",
        "./evil",
        "runs\\..\\evil",
        "C:evil",
        "evil\x1b[2J",
        "evil\x00.log",
        "a/" * 600 + "evil",
    ],
)
def test_a_name_that_leads_out_or_lies_is_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    path = crafted(tmp_path / "evil.zip", (named("harmless"), b"x"), (named(name), b"x"))
    with pytest.raises(ApparatusError, match=r"evil\.zip is refused: '.*': (a|an|not)"):
        unpacked(path, tmp_path)
    assert list((tmp_path / "target").iterdir()) == []
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (stat.S_IFLNK, "a link"),
        (stat.S_IFCHR, "a device"),
        (stat.S_IFBLK, "a device"),
        (stat.S_IFIFO, "a FIFO"),
        (stat.S_IFSOCK, "a socket"),
        (stat.S_IFDIR, "a directory"),
    ],
)
def test_what_is_no_regular_file_is_refused(tmp_path: Path, kind: int, word: str) -> None:
    path = crafted(tmp_path / "evil.zip", (named("runs/1/a", kind | 0o777), b"/etc/passwd"))
    with pytest.raises(ApparatusError, match=f"{word}, and only regular files are unpacked"):
        unpacked(path, tmp_path)


def test_a_name_that_is_there_twice_or_is_a_directory_too_is_refused(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        path = crafted(tmp_path / "evil.zip", (named("a"), b"1"), (named("a"), b"2"))
    with pytest.raises(ApparatusError, match="'a': it is there twice"):
        unpacked(path, tmp_path)
    path = crafted(tmp_path / "both.zip", (named("a"), b"1"), (named("a/b"), b"2"))
    with pytest.raises(ApparatusError, match="'a': a file and a directory at once"):
        archive.unpack(path, tmp_path / "target")


def test_a_bomb_is_refused_by_what_it_declares(tmp_path: Path) -> None:
    info = named("zeros")
    info.compress_type = zipfile.ZIP_DEFLATED
    path = crafted(tmp_path / "bomb.zip", (info, b"\0" * 3_000_000))
    assert path.stat().st_size < 5000
    with pytest.raises(ApparatusError, match="unpacks to 3000000 bytes, more than 1000000"):
        unpacked(path, tmp_path, Limits(file_bytes=1_000_000))
    with pytest.raises(ApparatusError, match="it unpacks to 3000000 bytes, more than 2000000"):
        archive.unpack(path, tmp_path / "target", Limits(total_bytes=2_000_000))
    with pytest.raises(ApparatusError, match="it holds 1 files, more than 0"):
        archive.unpack(path, tmp_path / "target", Limits(files=0))


def test_a_bomb_that_declares_too_little_is_stopped_at_what_it_declared(tmp_path: Path) -> None:
    info = named("zeros")
    info.compress_type = zipfile.ZIP_DEFLATED
    path = crafted(tmp_path / "bomb.zip", (info, b"\0" * 3_000_000))
    size = (3_000_000).to_bytes(4, "little")
    path.write_bytes(path.read_bytes().replace(size, (1000).to_bytes(4, "little")))
    assert set(unpacked(path, tmp_path)) == {"zeros"}
    assert list((tmp_path / "target").iterdir()) == []


def test_members_that_overlap_are_refused(tmp_path: Path) -> None:
    path = crafted(tmp_path / "evil.zip", (named("first"), b"x" * 100), (named("other"), b"x" * 100))
    data = bytearray(path.read_bytes())
    # Both entries of the directory lead to the first file.
    second = data.rindex(b"PK\x01\x02")
    data[second + 42 : second + 46] = (0).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(ApparatusError, match=r"is refused: .*overlap"):
        unpacked(path, tmp_path)


def test_an_encrypted_or_oddly_compressed_member_is_refused(tmp_path: Path) -> None:
    path = crafted(tmp_path / "evil.zip", (named("a"), b"1"))
    whole = path.read_bytes()
    entry = whole.rindex(b"PK\x01\x02")
    for offset, value, words in ((8, 1, "encrypted"), (10, 12, "compressed in an unknown way")):
        data = bytearray(whole)
        data[entry + offset] = value
        path.write_bytes(data)
        with pytest.raises(ApparatusError, match=words):
            archive.unpack(path, tmp_path)


def test_a_name_of_our_own_that_no_reader_would_take_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ApparatusError, match=r"`\.\.`"):
        archive.write(tmp_path / "mine.zip", [Member("../a", b"")])
