"""What a GPU run showed: values that become a JSON file, and a page about them for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from device import Device
from observe import Run


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one variant ended: exit code, whether it did well and printed what the original did, last words."""

    what: str
    code: int
    equal: bool
    words: str

    @classmethod
    def of(cls, what: str, run: Run, original: Run) -> Outcome:
        """The outcome of ``run``, whose results should be those of ``original``."""
        equal = run.code == 0 and run.results == original.results
        return cls(what, run.code, equal, run.words if run.code else "")


@dataclass(frozen=True, slots=True)
class Subject:
    """One program and its bundle. Names are file names; bytes are of files on disk.

    ``mapped``        bundle members that the bundle's process mapped; ``never_mapped`` the others.
    ``outside``       mapped from elsewhere although the bundle, not the host, should provide it.
    ``host``          the paths mapped from the host: the C library, the driver.
    ``unsampled``     what ld.so reports as loaded and the kernel's list did not show.
    ``hidden``        directories with the original libraries, made empty for the runs in ``without_originals``.
    ``speeds``        samples per second, medians: {"training": {"original": …, "bundle": …}, …}.
    ``removed``       what happens when one member is taken out: nothing is expected, it is to learn.
    """

    program: str
    model: str
    platform: dict[str, str]
    versions: dict[str, str]
    bundle_bytes: int
    dropped: dict[str, int]
    mapped: tuple[str, ...]
    never_mapped: tuple[str, ...]
    outside: tuple[str, ...]
    host: tuple[str, ...]
    unsampled: tuple[str, ...]
    original: Outcome
    bundle: Outcome
    speeds: dict[str, dict[str, float]]
    hidden: tuple[str, ...]
    without_originals: tuple[Outcome, ...]
    removed: tuple[Outcome, ...]

    def problems(self) -> Iterator[str]:
        """A sentence for each thing that is not as promised."""
        if not self.original.equal:
            yield f"{self.program}: the original itself fails: {self.original.words}"
        for outcome in (self.bundle, *self.without_originals):
            if outcome.code:
                yield f"{self.program}, {outcome.what}: exit code {outcome.code}, {outcome.words}"
            elif not outcome.equal:
                yield f"{self.program}, {outcome.what}: prints other results than the original"
        for path in self.outside:
            yield f"{self.program}: {path} is mapped, and it is not in the bundle"
        for name in self.unsampled:
            yield f"{self.program}: ld.so loads {name}, which the list of mappings did not show"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that one run of the script showed. ``environment`` is what the programs ran in."""

    device: Device
    date: str
    kernel: str
    glibc: str
    environment: dict[str, str] = field(default_factory=dict)
    subjects: tuple[Subject, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """What is not as promised, of all programs."""
        return tuple(problem for subject in self.subjects for problem in subject.problems())

    @property
    def name(self) -> str:
        """The file name without suffix: "nvidia-h200-cuda13.0"."""
        runtimes = [subject.platform.get("CUDA", "") for subject in self.subjects]
        version = next((text.split()[1].rstrip(",") for text in runtimes if len(text.split()) > 1), "")
        return f"{self.device.slug}-cuda{version or self.device.cuda}"

    def write(self, folder: Path) -> tuple[Path, Path]:
        """The JSON file and the page, in ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        values = {**asdict(self), "problems": list(self.problems)}
        record, page = folder / f"{self.name}.json", folder / f"{self.name}.md"
        record.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
        page.write_text(self.page(), encoding="utf-8")
        return record, page

    def page(self) -> str:
        """The Markdown page."""
        device = self.device
        lines = [
            f"# {device.name}, compute capability {device.capability}",
            "",
            f"{self.date}; driver {device.driver} (CUDA {device.cuda}), Linux {self.kernel}, {self.glibc}.",
            f"Environment of every run: {_listed([f'{k}={v}' for k, v in self.environment.items()]) or 'empty'}.",
            "",
            *(f"PROBLEM: {problem}" for problem in self.problems),
        ]
        for subject in self.subjects:
            lines += ["", *_about(subject)]
        return "\n".join(lines) + "\n"


def _about(subject: Subject) -> Iterator[str]:
    yield f"## {subject.program}, --model {subject.model}"
    yield ""
    yield _listed([f"{name} {version}" for name, version in subject.versions.items()]) + "."
    yield ""
    dropped = [f"{name} ({size / 1e6:.1f} MB)" for name, size in subject.dropped.items()]
    yield f"- bundle: {subject.bundle_bytes / 1e6:.1f} MB; left out: {_listed(dropped) or 'nothing'}"
    yield f"- results of original and bundle: {'equal' if subject.bundle.equal else 'NOT EQUAL'}"
    yield f"- mapped from the bundle: {_listed(subject.mapped)}"
    yield f"- in the bundle and never mapped: {_listed(subject.never_mapped) or 'nothing'}"
    yield f"- mapped from elsewhere: {_listed(subject.outside) or 'nothing but what the host provides'}"
    hidden = f"{len(subject.hidden)} directories" if subject.hidden else "NOT HIDDEN: this user may not mount"
    yield f"- runs with the original libraries hidden: {hidden}"
    yield ""
    yield from _speeds(subject.speeds)
    yield ""
    yield "| bundle | exit code | results | last words |"
    yield "| --- | --- | --- | --- |"
    for outcome in (subject.bundle, *subject.without_originals, *subject.removed):
        words = outcome.words.replace("|", "\\|")
        yield f"| {outcome.what} | {outcome.code} | {'equal' if outcome.equal else 'differ'} | {words} |"


def _speeds(speeds: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    yield "| samples/s | original | bundle |"
    yield "| --- | --- | --- |"
    for name, pair in speeds.items():
        yield f"| {name} | {pair['original']:.0f} | {pair['bundle']:.0f} |"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
