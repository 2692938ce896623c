"""What the steps of the slice script found: values that become a JSON file, and a page about them for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from device import Device


class Verdict(StrEnum):
    """Whether a promise held; or that something was seen of which nothing is promised; or that nothing was seen."""

    HELD = "held"
    BROKEN = "BROKEN"
    SEEN = "seen"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. ``words`` says what was seen, or why nothing was; ``figures`` are for JSON."""

    what: str
    verdict: Verdict
    words: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def promise(cls, what: str, words: str, *, held: bool, **figures: Any) -> Finding:
        """A finding about something that slicing promises."""
        return cls(what, Verdict.HELD if held else Verdict.BROKEN, words, figures)

    @classmethod
    def seen(cls, what: str, words: str, **figures: Any) -> Finding:
        """A finding about something that nothing is promised of."""
        return cls(what, Verdict.SEEN, words, figures)

    @classmethod
    def skipped(cls, what: str, why: str) -> Finding:
        """What could not be looked at, and why."""
        return cls(what, Verdict.SKIPPED, why)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the script: its name, how many seconds it took, and what it found."""

    name: str
    seconds: float
    findings: tuple[Finding, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        """A sentence for each promise that did not hold."""
        broken = [each for each in self.findings if each.verdict is Verdict.BROKEN]
        return tuple(f"{self.name}: {each.what}: {each.words}" for each in broken)


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that one run of the script found. ``own`` is the device's SM, ``other`` one that it cannot run."""

    device: Device
    date: str
    kernel: str
    glibc: str
    own: str
    other: str
    environment: Mapping[str, str]
    name: str
    steps: tuple[Step, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """The promises that did not hold, of all steps."""
        return tuple(problem for step in self.steps for problem in step.problems)

    def write(self, folder: Path) -> tuple[Path, Path]:
        """The JSON file and the page, in ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        record, page = folder / f"{self.name}.json", folder / f"{self.name}.md"
        values = {**asdict(self), "problems": list(self.problems)}
        record.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
        page.write_text("\n".join(self.page()) + "\n", encoding="utf-8")
        return record, page

    def page(self) -> Iterator[str]:
        """The lines of the Markdown page."""
        device = self.device
        yield f"# Slices on {device.name}, {self.own}"
        yield ""
        yield f"{self.date}; driver {device.driver} (CUDA {device.cuda}), Linux {self.kernel}, {self.glibc}."
        yield f"The wrong slices are for {self.other}. Original: unmodified libraries. Environment: " + (
            ", ".join(f"{name}={value}" for name, value in self.environment.items()) or "empty"
        )
        yield ""
        yield from (f"PROBLEM: {problem}\n" for problem in self.problems)
        for step in self.steps:
            yield f"## {step.name} ({step.seconds:.0f} s)"
            yield ""
            yield "| looked at | verdict | what was seen |"
            yield "| --- | --- | --- |"
            yield from (f"| {each.what} | {each.verdict} | {_cell(each.words)} |" for each in step.findings)
            yield ""


def _cell(words: str) -> str:
    return " ".join(words.split()).replace("|", "\\|")
