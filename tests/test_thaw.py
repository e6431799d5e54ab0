"""A stored snapshot is laid out again as the checks saw it, and nothing else ever is."""

import io
import tarfile
from pathlib import Path

import pytest

from agent_ab import snapshot
from agent_ab.errors import ApparatusError
from agent_ab.review.thaw import thawed


def crafted(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for info, data in members:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, to: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, to
    return info


def test_what_was_frozen_comes_back_file_by_file(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    (workspace / "deep" / "er").mkdir(parents=True)
    (workspace / "deep" / "a.py").write_text("print()\n")
    (workspace / "deep" / "er" / "run.sh").write_text("#!/bin/sh\n")
    (workspace / "deep" / "er" / "run.sh").chmod(0o755)
    (workspace / "back").symlink_to("deep/a.py")
    frozen = snapshot.freeze(workspace, tmp_path / "frozen", tmp_path / "snapshot.tar")
    with thawed(tmp_path / "snapshot.tar", tmp_path / "thawed") as there:
        again = snapshot.freeze(there, tmp_path / "again", tmp_path / "again.tar")
        assert (there / "deep" / "a.py").stat().st_mode & 0o777 == 0o444
        assert (there / "deep" / "er" / "run.sh").stat().st_mode & 0o777 == 0o555
        assert again.files == frozen.files
    assert not (tmp_path / "thawed").exists()
    assert (tmp_path / "again.tar").read_bytes() == (tmp_path / "snapshot.tar").read_bytes()


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (member("../evil"), "a name that leads out"),
        (member("/evil"), "a name that leads out"),
        (member("a/../../evil"), "a name that leads out"),
        (member("a//evil"), "a name that leads out"),
        (member("out", tarfile.SYMTYPE, "/etc/passwd"), "a link that leads out"),
        (member("out", tarfile.SYMTYPE, "../evil"), "a link that leads out"),
        (member("a/out", tarfile.SYMTYPE, "../../evil"), "a link that leads out"),
        (member("hard", tarfile.LNKTYPE, "a"), "neither a regular file nor a link"),
        (member("null", tarfile.CHRTYPE), "neither a regular file nor a link"),
        (member("disk", tarfile.BLKTYPE), "neither a regular file nor a link"),
        (member("pipe", tarfile.FIFOTYPE), "neither a regular file nor a link"),
    ],
    ids=lambda value: value.name if isinstance(value, tarfile.TarInfo) else "",
)
def test_what_no_snapshot_holds_is_refused(tmp_path: Path, made: tarfile.TarInfo, why: str) -> None:
    path = crafted(tmp_path / "evil.tar", (member("a.py"), b"x"), (made, b""))
    with pytest.raises(ApparatusError, match=why), thawed(path, tmp_path / "thawed"):
        raise AssertionError("it was laid out")
    assert not (tmp_path / "thawed").exists() and not (tmp_path / "evil").exists()


def test_no_file_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    path = crafted(
        tmp_path / "evil.tar", (member("a", tarfile.SYMTYPE, "b"), b""), (member("a/evil"), b"x"), (member("b/c"), b"")
    )
    with pytest.raises(ApparatusError, match="it cannot be unpacked"), thawed(path, tmp_path / "thawed"):
        pass


def test_more_than_a_snapshot_may_hold_is_refused(tmp_path: Path) -> None:
    big = member("big")
    path = crafted(tmp_path / "bomb.tar", (big, b""))
    data = bytearray(path.read_bytes())
    info = member("big")
    info.size = snapshot.MAX_TOTAL_BYTES + 1
    data[:512] = info.tobuf()
    path.write_bytes(data)
    with pytest.raises(ApparatusError, match="more than a snapshot may"), thawed(path, tmp_path / "thawed"):
        pass


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "not.tar").write_bytes(b"hello" * 400)
    with (
        pytest.raises(ApparatusError, match="it cannot be unpacked"),
        thawed(tmp_path / "not.tar", tmp_path / "thawed"),
    ):
        pass
