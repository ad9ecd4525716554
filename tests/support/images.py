"""The project's images, built from its own Dockerfile; once for each content.

`python -m tests.support.images` builds both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from localcluster.building import Progress, print_progress
from localcluster.images import Image, base_image, build_image
from localcluster.paths import cache_directory

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ("Dockerfile", ".dockerignore", "scripts/image_root.py")
# What each target of the Dockerfile is made of beside its recipe.
SOURCES = {"operator": ("operator", "constraints/operator.txt"), "plugin": ("policies",)}
SUFFIXES = {".css", ".j2", ".js", ".json", ".py", ".toml", ".typed"}


def operator_image(progress: Progress = print_progress) -> Image:
    """The operator's image (root)."""
    return _image("operator", progress)


def plugin_image(progress: Progress = print_progress) -> Image:
    """The image from which engines' pods copy the plugin (root)."""
    return _image("plugin", progress)


def _image(target: str, progress: Progress) -> Image:
    """Build it, unless these very sources were built before; older builds are removed.

    One name for all builds: what had it before is pruned. A node is new in every session.
    """
    base = base_image(progress)
    prefix = f"{target}-image-"
    archive = cache_directory() / f"{prefix}{_content(target, base.reference)}.tar"
    image = Image(archive, f"localhost/evictune/{target}:test")
    if not archive.exists():
        for stale in cache_directory().glob(f"{prefix}*.tar"):
            stale.unlink()
        build_image(
            ROOT / "Dockerfile",
            ROOT,
            image.reference,
            {"BASE_IMAGE": base.reference},
            target=target,
            archive=archive,
            progress=progress,
        )
    return image


def _content(target: str, base: str) -> str:
    """A digest of all that the image is made of."""
    digest = hashlib.sha256(f"{target}\0{base}".encode())
    for path in _files(target):
        digest.update(f"\0{path.relative_to(ROOT)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _files(target: str) -> Iterator[Path]:
    """What the target takes of what .dockerignore lets through."""
    yield from (ROOT / name for name in RECIPE)
    for name in SOURCES[target]:
        source = ROOT / name
        if source.is_file():
            yield source
        for path in sorted(source.rglob("*")):
            if path.suffix in SUFFIXES and "build" not in path.parts:
                yield path


if __name__ == "__main__":
    operator_image()
    plugin_image()
