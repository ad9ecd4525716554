"""The operator's image, built from the project's own Dockerfile; once for each content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from localcluster.building import Progress, print_progress
from localcluster.images import Image, base_image, build_image
from localcluster.paths import cache_directory

ROOT = Path(__file__).resolve().parents[2]
# One name for all builds: what had it before is pruned. A node is new in every session.
REFERENCE = "localhost/evictune/operator:test"
SOURCES = ("operator", "policies")
PREFIX = "operator-image-"


def operator_image(progress: Progress = print_progress) -> Image:
    """Build it, unless these very sources were built before; older builds are removed (root)."""
    base = base_image(progress)
    key = _content(base.reference)
    archive = cache_directory() / f"{PREFIX}{key}.tar"
    image = Image(archive, REFERENCE)
    if not archive.exists():
        for stale in cache_directory().glob(f"{PREFIX}*.tar"):
            stale.unlink()
        arguments = {"BASE_IMAGE": base.reference}
        build_image(
            ROOT / "Dockerfile",
            ROOT,
            image.reference,
            arguments,
            archive=archive,
            progress=progress,
        )
    return image


def _content(base: str) -> str:
    """A digest of all that the image is made of."""
    digest = hashlib.sha256(f"{REFERENCE}\0{base}".encode())
    for path in _files():
        digest.update(f"\0{path.relative_to(ROOT)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _files() -> Iterator[Path]:
    """What .dockerignore lets through."""
    yield from (ROOT / name for name in ("Dockerfile", ".dockerignore", "constraints/operator.txt"))
    for name in SOURCES:
        for path in sorted((ROOT / name).rglob("*")):
            if path.suffix in {".py", ".toml", ".typed"} and "build" not in path.parts:
                yield path
