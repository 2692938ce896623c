"""The lists of what NVIDIA's container runtime mounts from a Jetson into every container.

A list is a file NAME.csv of lines ``KIND, /path``, where the kind is ``lib`` (a library or any other file),
``sym`` (a symbolic link), ``dir`` or ``dev``. On a device they lie in
/etc/nvidia-container-runtime/host-files-for-container.d. What counts as a list and as a line is what
NVIDIA/nvidia-container-toolkit takes (internal/platform-support/tegra/csv/csv.go and mount_spec.go, read at
d34b3046): it passes over a line that it cannot read, so such a line is told here and is no error.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from pathlib import Path

from packager.errors import usage

DEFAULT_DIRECTORY = "/etc/nvidia-container-runtime/host-files-for-container.d"

_KINDS = ("lib", "sym", "dir", "dev")


@dataclass(frozen=True, slots=True)
class HostFiles:
    """The files and links that a device supplies to its containers: paths there, sorted, without repetition.

    ``lists``    the files that were read.
    ``skipped``  lines that the runtime passes over too, as "drivers.csv:12: the line".
    """

    files: tuple[str, ...]
    links: tuple[str, ...]
    lists: tuple[Path, ...]
    skipped: tuple[str, ...]

    def supplies(self, soname: str) -> str | None:
        """The path that a library with this soname comes from; None where the lists do not have it.

        A file with a longer version counts, since ldconfig runs in the container and links the soname to it:
        libcuda.so.1.1 supplies libcuda.so.1. Directories are mounted whole; what is in them is not known here.
        """
        paths = sorted((*self.files, *self.links), key=lambda path: (len(path), path))
        named = next((path for path in paths if posixpath.basename(path) == soname), None)
        if named is not None or ".so." not in soname:
            return named
        return next((path for path in paths if posixpath.basename(path).startswith(f"{soname}.")), None)


def read_host_csv(directory: Path) -> HostFiles:
    """Read every list of a directory. DpackError (exit 2) where there is none, or one cannot be read."""
    lists = _lists(directory)
    paths: dict[str, set[str]] = {kind: set() for kind in _KINDS}
    skipped = []
    for file in lists:
        for number, line in enumerate(_lines(file), 1):
            kind, _, path = (part.strip() for part in line.partition(","))
            if kind in paths and path:
                paths[kind].add(path)
            elif line.strip():
                skipped.append(f"{file.name}:{number}: {line.strip()}")
    files, links = (tuple(sorted(paths[kind])) for kind in ("lib", "sym"))
    return HostFiles(files, links, lists, tuple(skipped))


def _lists(directory: Path) -> tuple[Path, ...]:
    try:
        entries = sorted(directory.iterdir())
    except OSError as error:
        raise usage(
            f"cannot read the lists in {directory}",
            error.strerror or str(error),
            next=f"copy {DEFAULT_DIRECTORY} from the device and name the copy",
        ) from error
    found = tuple(each for each in entries if each.suffix.lower() == ".csv" and not each.is_dir())
    if not found:
        raise usage(
            f"cannot use {directory} as the device's lists",
            "it holds no file NAME.csv",
            tried=[each.name for each in entries[:8]],
            next=f"copy {DEFAULT_DIRECTORY} from the device and name the copy",
        )
    return found


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = "not text" if isinstance(error, UnicodeDecodeError) else error.strerror or str(error)
        raise usage(f"cannot read {file}", why, next="copy the list from the device again") from error
