"""What the watched directory wants: new files, broken ones, none, and the clock."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from evictune_policies.engine.knobs import Knobs
from evictune_policies.engine.source import KnobSource, Wanted

HOUR = 3600.0
NOW = datetime(2026, 11, 29, 12, tzinfo=UTC).timestamp()
XI_512 = Knobs("t-lru", 512, 200)


class Mount:
    """A ConfigMap volume as kubelet makes it: files linked through ``..data``, swapped whole."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.generation = 0

    def put(self, text: str | None) -> None:
        """Swap in a new generation; None is a ConfigMap that vanished."""
        self.generation += 1
        version = self.directory / f"..2026_{self.generation}"
        version.mkdir()
        link = self.directory / "knobs.json"
        if text is None:
            link.unlink(missing_ok=True)
        else:
            (version / "knobs.json").write_text(text)
        new = self.directory / "..data_tmp"
        new.symlink_to(version.name)
        new.replace(self.directory / "..data")
        if text is not None and not link.is_symlink():
            link.symlink_to("..data/knobs.json")


@pytest.fixture
def mount(tmp_path: Path) -> Mount:
    return Mount(tmp_path)


@pytest.fixture
def source(tmp_path: Path) -> KnobSource:
    return KnobSource(tmp_path, "chat-0")


def document(revision: int = 7, expires: float = NOW + HOUR, xi: int = 512) -> str:
    return json.dumps(
        {
            "schema": "evictune.io/knobs/v1",
            "revision": revision,
            "expires": datetime.fromtimestamp(expires, UTC).isoformat(),
            "default": {"policy": "t-lru", "xiTokens": xi, "qHatTokens": 200},
        }
    )


def test_no_directory_is_stock(tmp_path: Path) -> None:
    source = KnobSource(tmp_path / "missing", "chat-0")
    assert source.poll(NOW) == Wanted()
    assert source.refusal is None


def test_a_file_in_place_of_the_directory_is_stock(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    assert KnobSource(tmp_path / "file", "chat-0").poll(NOW) == Wanted()


def test_swapped_mount_is_followed_and_vanishing_is_stock(mount: Mount, source: KnobSource) -> None:
    mount.put(document())
    assert source.poll(NOW) == Wanted(7, XI_512)
    mount.put(document(8, xi=64))
    assert source.poll(NOW) == Wanted(8, Knobs("t-lru", 64, 200))
    mount.put(None)
    assert source.poll(NOW) == Wanted()
    assert source.refusal is None


def test_refused_document_leaves_the_old_values_until_they_expire(
    mount: Mount, source: KnobSource
) -> None:
    mount.put(document())
    source.poll(NOW)
    mount.put('{"schema":')
    for _ in range(3):
        assert source.poll(NOW + 1) == Wanted(7, XI_512)
    assert source.refused == {"Malformed": 1}
    assert source.refusal is not None
    assert source.refusal.reason == "Malformed"
    assert source.poll(NOW + HOUR) == Wanted()
    assert source.refusal.reason == "Malformed", "what is on disk is still the broken document"


def test_every_refused_document_is_counted(mount: Mount, source: KnobSource) -> None:
    for _ in range(2):
        mount.put("no")
        source.poll(NOW)
    mount.put(document().replace("evictune.io", "other.io"))
    source.poll(NOW)
    assert source.refused == {"Malformed": 2, "Foreign": 1}


def test_good_document_ends_the_refusal(mount: Mount, source: KnobSource) -> None:
    mount.put("no")
    source.poll(NOW)
    mount.put(document())
    assert source.poll(NOW) == Wanted(7, XI_512)
    assert source.refusal is None


def test_expires_while_loaded_and_is_renewed_with_the_same_revision(
    mount: Mount, source: KnobSource
) -> None:
    mount.put(document(expires=NOW + 10))
    assert source.poll(NOW + 9.9) == Wanted(7, XI_512)
    assert source.poll(NOW + 10) == Wanted()
    assert source.poll(NOW + 11) == Wanted()
    assert source.refused == {"Expired": 1}
    assert source.refusal is not None
    assert source.refusal.message == "revision 7 expired 0 s ago"
    mount.put(document(expires=NOW + HOUR))
    assert source.poll(NOW + 12) == Wanted(7, XI_512)
    assert source.refusal is None


def test_clock_set_back_revives_the_document(mount: Mount, source: KnobSource) -> None:
    mount.put(document(expires=NOW + 10))
    assert source.poll(NOW + 20) == Wanted()
    assert source.poll(NOW) == Wanted(7, XI_512)
    assert source.refusal is None


def test_what_is_not_a_file_is_refused_once(tmp_path: Path, source: KnobSource) -> None:
    (tmp_path / "knobs.json").mkdir()
    for _ in range(3):
        assert source.poll(NOW) == Wanted()
    assert source.refused == {"Unreadable": 1}


def test_what_cannot_be_followed_is_refused_once_and_tried_again(
    tmp_path: Path, source: KnobSource
) -> None:
    file = tmp_path / "knobs.json"
    file.symlink_to("knobs.json")
    for _ in range(3):
        assert source.poll(NOW) == Wanted()
    assert source.refused == {"Unreadable": 1}
    file.unlink()
    file.write_text(document())
    assert source.poll(NOW) == Wanted(7, XI_512)
