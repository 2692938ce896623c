"""An OCI image of a CNN's files in one archive: dpack beside podman, or umoci where podman does not run."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from measure import DPACK, WORK, Tool

FOLDER = WORK / "image"


def tools(request: Sequence[str], files: Sequence[Path], compression: str) -> tuple[list[Tool], list[str]]:
    """What to measure for one ``compression``, and a sentence where podman is not it.

    ``files`` are those that the image of ``request`` holds.
    """
    gigabytes = sum(path.stat().st_size for path in files) / 1e9
    output = WORK / f"dpack-{compression}.oci.tar"
    name = (
        f"dpack bundle --format oci-archive, {compression}, 3 layers ({len(files)} files, {gigabytes:.2f} GB)"
    )
    options = ("--format", "oci-archive", "--compression", compression, "--force", "--output", str(output))
    ours = Tool(name, ((DPACK, "bundle", *request, *options),), "< 300 MB", writes=output)
    context = _context(files)
    try:
        return [ours, _podman(context, compression)], []
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        words = f"podman does not run here ({_last(error)})"
    if compression != "gzip":
        return [ours], [f"Left out: podman build, {compression}: {words}."]
    return [ours, _umoci(context)], [f"umoci stands in for podman build: {words}."]


def _last(error: FileNotFoundError | subprocess.CalledProcessError) -> str:
    words = "" if isinstance(error, FileNotFoundError) else str(error.stderr).strip()
    return (words.splitlines() or [str(error)])[-1]


def _context(files: Sequence[Path]) -> Path:
    """A directory with the files, hard links where the file system allows it."""
    context = FOLDER / "context"
    shutil.rmtree(context, ignore_errors=True)
    (context / "lib").mkdir(parents=True)
    for path in files:
        target = context / "lib" / path.name
        try:
            os.link(path.resolve(), target)
        except OSError:
            shutil.copy2(path, target)
    return context


def _podman(context: Path, compression: str) -> Tool:
    """Build with one COPY and write the archive; what it keeps in its store goes before each run.

    FileNotFoundError or CalledProcessError where it cannot build anything here.
    """
    recipe, output = FOLDER / "Containerfile", WORK / f"podman-{compression}.oci.tar"
    recipe.write_text("FROM scratch\nCOPY lib /app/lib\n", encoding="utf-8")
    driver, podman = _storage()
    script = (
        f"{podman} build --quiet --no-cache --format oci --tag bench --file {recipe} {context} && "
        f"{podman} push --quiet --compression-format {compression} bench oci-archive:{output}"
    )
    # It copies the blobs to TMPDIR first, by default on another file system than the store.
    scratch = FOLDER / "tmp"
    scratch.mkdir(exist_ok=True)
    return Tool(
        f"podman build with COPY ({driver}), podman push to oci-archive, {compression}",
        (("sh", "-c", script),),
        environment={"TMPDIR": str(scratch.resolve())},
        before=(("sh", "-c", f"{podman} rmi --all --force; rm -f {output}"),),
        writes=output,
    )


def _storage() -> tuple[str, str]:
    """The first of podman's storage drivers that works here, and the command with its options."""
    if shutil.which("podman") is None:
        raise FileNotFoundError("podman is not installed")
    empty = FOLDER / "empty"
    empty.mkdir(exist_ok=True)
    (empty / "Containerfile").write_text("FROM scratch\nCOPY Containerfile /\n", encoding="utf-8")
    failures = []
    for driver in ("overlay", "vfs"):
        store, state = (FOLDER.resolve() / f"{kind}-{driver}" for kind in ("store", "run"))
        command = f"podman --root {store} --runroot {state} --storage-driver {driver}"
        try:
            subprocess.run([*command.split(), "build", empty], check=True, capture_output=True, text=True)
        except subprocess.CalledProcessError as error:
            failures.append(error)
        else:
            return driver, command
    raise failures[-1]


def _umoci(context: Path) -> Tool:
    layout, output = FOLDER / "umoci", WORK / "umoci-gzip.oci.tar"
    script = (
        f"umoci init --layout {layout} && umoci new --image {layout}:bench && "
        f"umoci insert --image {layout}:bench {context} /app && tar -cf {output} -C {layout} ."
    )
    before = (("rm", "-rf", str(layout), str(output)), ("umoci", "--version"))
    return Tool("umoci insert, tar, gzip", (("sh", "-c", script),), before=before, writes=output)


def clean() -> None:
    """Remove what the tools left. podman keeps its overlay store mounted: a store of other users' is untouched."""
    for store in FOLDER.glob("store-*"):
        place = store / "overlay"
        if place.is_mount():
            subprocess.run(["umount", str(place)], check=False)
    shutil.rmtree(FOLDER, ignore_errors=True)
