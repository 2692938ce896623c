"""Sizes as people read them. Decimal: 1 kB is 10^3 bytes, 1 MB 10^6, 1 GB 10^9 (IEC 80000-13)."""

from __future__ import annotations

TIMES = "\N{MULTIPLICATION SIGN}"

_UNITS = (("kB", 10**3, 0), ("MB", 10**6, 1), ("GB", 10**9, 1), ("TB", 10**12, 1))


def human(size: int) -> str:
    """``size`` in bytes as text: "0 B", "741 kB", "285.2 MB", "1.3 GB"; halves are rounded up."""
    if abs(size) < 1000:
        return f"{size} B"
    sign = "-" if size < 0 else ""
    for unit, scale, digits in _UNITS:
        tenths = 10**digits
        value = (abs(size) * tenths + scale // 2) // scale
        if value < 1000 * tenths or unit == _UNITS[-1][0]:
            break
    return f"{sign}{value / tenths:.{digits}f} {unit}"


def ratio(size: int, other: int) -> str:
    """How many times ``other`` bytes go into ``size`` bytes: 0.77, 1.2 or 138 and a multiplication sign.

    Empty where ``other`` is nothing.
    """
    if other <= 0:
        return ""
    times = size / other
    if times < 0.995:
        return f"{times:.2f}{TIMES}"
    return f"{times:.1f}{TIMES}" if times < 9.95 else f"{times:.0f}{TIMES}"
