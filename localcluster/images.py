"""Container images without a container engine: debootstrap for the base, buildah for the rest.

All of it runs in mount namespaces of its own, so that nothing stays mounted however it ends.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from localcluster.building import Progress, exclusive, print_progress, run
from localcluster.ledger import Ledger
from localcluster.paths import cache_directory
from localcluster.system import require_node

SUITE = "bookworm"
# A Python to run our own code, what the wheels of vLLM and PyTorch load, and the compiler that
# torch.compile calls.
PACKAGES = (
    "ca-certificates",
    "g++",
    "gcc",
    "libgomp1",
    "libnuma1",
    "libstdc++6",
    "python3",
    "python3-pip",
    "python3-venv",
)
# A base image also serves as the sandbox ("pause") image of every pod: it must stay alive.
BASE_DOCKERFILE = """\
FROM scratch
ADD rootfs.tar /
CMD ["sleep", "infinity"]
"""
CERTIFICATES = Path("/etc/ssl/certs")
PIP_CONFIGURATION = Path("/etc/pip.conf")
PRIVATE_MOUNTS = ("unshare", "--mount", "--propagation", "private")
ALLOW_ALL = '{"default": [{"type": "insecureAcceptAnything"}]}'


@dataclass(frozen=True)
class Image:
    """An image in an archive (docker-archive, uncompressed), and its name."""

    archive: Path
    reference: str


def base_image(progress: Progress = print_progress) -> Image:
    """Debian with Python and a compiler; built once for each content of its recipe (root)."""
    require_node()
    recipe = json.dumps([SUITE, PACKAGES, BASE_DOCKERFILE])
    key = hashlib.sha256(recipe.encode()).hexdigest()[:12]
    image = Image(cache_directory() / f"base-image-{key}.tar", f"localhost/evictune/base:{key}")
    with exclusive("base-image", progress):
        if not image.archive.exists():
            with _scratch() as scratch:
                _debootstrap(scratch, progress)
                build_image(
                    scratch / "Dockerfile",
                    scratch / "context",
                    image.reference,
                    archive=image.archive,
                    progress=progress,
                )
    return image


def build_image(
    dockerfile: Path,
    context: Path,
    tag: str,
    build_args: Mapping[str, str] | None = None,
    *,
    target: str = "",
    archive: Path | None = None,
    progress: Progress = print_progress,
) -> Image:
    """Build a Dockerfile by buildah (root); the image goes to `archive` (default: in the cache).

    `target` is the stage to end with (default: the last one), `tag` a full name such as
    localhost/evictune/operator:test. A `FROM` finds the images that were built here before. RUN has
    this machine's network. The machine's own certificates and pip settings are there during the
    build, for machines behind a mirror with a CA of its own: a Dockerfile that declares
    `ARG PIP_CERT` and `ARG PIP_INDEX_URL` gets those too.
    """
    require_node()
    name = hashlib.sha256(tag.encode()).hexdigest()[:12]
    written = archive or cache_directory() / f"image-{name}.tar"
    partial = written.with_name(f".{written.name}.partial")
    with exclusive("images", progress) as lock, _scratch() as scratch:
        buildah = _buildah(scratch)
        build = [*buildah, "bud", "--isolation", "chroot", "--network", "host", "--pull-never"]
        build += [*_signature_policy(scratch), *_machine_settings(), "--layers"]
        build += ["--target", target] if target else []
        for key, value in (build_args or {}).items():
            build += ["--build-arg", f"{key}={value}"]
        build += ["--file", str(dockerfile), "--tag", tag, str(context)]
        # Uncompressed, as this format alone is with buildah 1.28: six seconds instead of a minute.
        push = [*buildah, "push", *_signature_policy(scratch), tag]
        push.append(f"docker-archive:{partial}:{tag}")
        try:
            # A build that was killed leaves its container, whose image could not be pruned.
            run([*buildah, "rm", "--all"], "clearing up after builds", progress, lock=lock)
            run(build, f"building image {tag}", progress, lock=lock)
            partial.unlink(missing_ok=True)
            run(push, f"writing image {tag}", progress, lock=lock)
            partial.rename(written)
            # What had this tag before is of no use any more.
            run([*buildah, "rmi", "--prune"], "pruning images", progress, lock=lock)
        finally:
            partial.unlink(missing_ok=True)
    return Image(written, tag)


def _debootstrap(scratch: Path, progress: Progress) -> None:
    """A root file system in context/rootfs.tar, and the Dockerfile for it."""
    root, context = scratch / "rootfs", scratch / "context"
    context.mkdir()
    (scratch / "Dockerfile").write_text(BASE_DOCKERFILE)
    progress(f"making the base image: Debian {SUITE} with Python and a compiler (once)")
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE]
    run([*PRIVATE_MOUNTS, *command, root], "making the base image: debootstrap", progress)
    shutil.rmtree(root / "var/cache/apt/archives")
    shutil.rmtree(root / "var/lib/apt/lists")
    tar = ["tar", "-C", str(root), "--exclude=./dev/*", "--exclude=./proc/*", "--exclude=./sys/*"]
    run([*tar, "-cf", str(context / "rootfs.tar"), "."], "making the base image: tar", progress)


def _buildah(scratch: Path) -> list[str]:
    """buildah with a storage of our own in the cache; what it mounts goes when it ends."""
    storage = cache_directory() / "image-storage"
    locations = ["--root", str(storage), "--runroot", str(scratch / "runroot")]
    return [*PRIVATE_MOUNTS, "buildah", *locations, "--storage-driver", "overlay"]


def _signature_policy(scratch: Path) -> list[str]:
    """Nothing is pulled, so nothing is to be verified; without a file buildah refuses."""
    path = scratch / "policy.json"
    path.write_text(ALLOW_ALL)
    return ["--signature-policy", str(path)]


def _machine_settings() -> list[str]:
    """How RUN reaches package indexes the way this machine does."""
    settings = []
    for path in (CERTIFICATES, PIP_CONFIGURATION):
        if path.exists():
            settings += ["--volume", f"{path}:{path}:ro"]
    for key in ("PIP_CERT", "PIP_INDEX_URL"):
        if key in os.environ:
            settings += ["--build-arg", f"{key}={os.environ[key]}"]
    return settings


@contextmanager
def _scratch() -> Iterator[Path]:
    """A temporary directory that goes even when we are killed (see `ledger`)."""
    ledger = Ledger()
    path = Path(tempfile.gettempdir()) / f"evictune-image-{ledger.id}"
    ledger.note("tree", str(path))
    path.mkdir(mode=0o700)
    try:
        yield path
    finally:
        ledger.undo()
