"""What two ways of running the same program have in common: results, speed, and how they fail."""

from __future__ import annotations

import difflib
import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from findings import Finding
from observe import Run

NO_IMAGE = "no kernel image is available"
"""What CUDA says of cudaErrorNoKernelImageForDevice, 209 (cudaGetErrorString)."""

# How the examples, PyTorch and the libraries' own names of a status say that a call failed.
_CLEAR = re.compile(rf"{NO_IMAGE}|CU[A-Z]+_STATUS_\w+|\w+ failed: ")
_NOISE = 0.10


def same_results(originals: Sequence[Run], others: Sequence[Run], what: str = "results") -> Finding:
    """Whether all print what the originals print, which is a promise where these agree with each other."""
    figures = {"original": how(originals[0]), "others": [how(each) for each in others]}
    if failed := [each for each in originals if each.code]:
        ended = f"the original itself fails: exit code {failed[0].code}, {failed[0].words}"
        return Finding.promise(what, ended, held=False, **figures)
    if failed := [each for each in others if each.code]:
        return Finding.promise(what, f"exit code {failed[0].code}, {failed[0].words}", held=False, **figures)
    if len({each.results for each in originals}) > 1:
        return Finding.seen(what, "the original differs from run to run, so bits are not compared", **figures)
    unlike = next((each for each in others if each.results != originals[0].results), None)
    if unlike is not None:
        words = f"not those of the original: {_difference(originals[0].results, unlike.results)}"
        return Finding.promise(what, words, held=False, **figures)
    words = f"equal to the last digit in {len(others)} runs, as the original's {len(originals)}"
    return Finding.promise(what, words, held=True, **figures)


def same_end(original: Run, other: Run, what: str, *, may_fail: bool = False) -> Finding:
    """Whether the other prints and ends as the original does. Where that fails nothing is shown, unless it
    ``may_fail``: then the other is to fail likewise.
    """
    if original.code and not may_fail:
        words = f"the original itself fails: exit code {original.code}, {original.words}"
        return Finding.promise(what, words, held=False, original=how(original), other=how(other))
    held = (original.code, original.results) == (other.code, other.results)
    words = f"exit code {other.code}, as the original, and the same output"
    if held and original.code:
        return Finding.seen(what, words, original=how(original), other=how(other))
    if not held:
        unlike = _difference(original.results, other.results)
        words = f"exit code {other.code} ({other.words}), the original's {original.code}; {unlike}"
    return Finding.promise(what, words, held=held, original=how(original), other=how(other))


def how(ended: Run) -> dict[str, Any]:
    """A run as JSON."""
    return {
        "code": ended.code,
        "out": ended.out,
        "words": ended.err.strip(),
        "seconds": round(ended.seconds, 2),
    }


def _difference(original: str, other: str) -> str:
    lines = difflib.unified_diff(original.splitlines(), other.splitlines(), lineterm="", n=0)
    changed = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    return "; ".join(changed[:6]) or "the same output"


def same_speed(originals: Sequence[Run], others: Sequence[Run]) -> Finding:
    """Whether the medians of what all report are the same within noise.

    Noise is 10%, or what the originals themselves differ by where that is more. Faster is no broken promise.
    """
    names = [name for name in originals[0].speeds if all(name in run.speeds for run in (*originals, *others))]
    if not names:
        return Finding.skipped("speed", "not every run reports one")
    rows = {
        name: _row([r.speeds[name] for r in originals], [r.speeds[name] for r in others]) for name in names
    }
    words = [
        f"{name} {row['ratio']:.2f} of the original's {row['original']:.0f}/s" for name, row in rows.items()
    ]
    held = all(row["ratio"] >= 1 - row["noise"] for row in rows.values())
    return Finding.promise("speed", ", ".join(words), held=held, medians=rows)


def _row(originals: Sequence[float], others: Sequence[float]) -> Mapping[str, float]:
    original, other = statistics.median(originals), statistics.median(others)
    spread = (max(originals) - min(originals)) / original if original else 0.0
    ratio = other / original if original else 1.0
    noise = max(_NOISE, spread)
    return {"original": original, "other": other, "ratio": round(ratio, 4), "noise": round(noise, 4)}


def clear_failure(original: Run, wrong: Run, what: str, *, exact: bool) -> Finding:
    """Whether a slice for another GPU fails by saying so: an error of a call, no signal and no wrong answer.

    With ``exact`` the words must be the driver's own; without, a library may have made them its own status.
    """
    said = sorted({line.strip() for line in wrong.err.splitlines() if line.strip()})
    figures = {"run": how(wrong)}
    words = f"exit code {wrong.code}: {'; '.join(said) or 'nothing said'}"
    if wrong.code == 0 and wrong.results == original.results:
        return Finding.seen(what, "runs all the same: nothing that it needs was cut", **figures)
    clear = NO_IMAGE in wrong.err if exact else bool(_CLEAR.search(wrong.err))
    return Finding.promise(what, words, held=wrong.code > 0 and clear, **figures)
