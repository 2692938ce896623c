from __future__ import annotations

import pytest

from packager.account.size import TIMES, human, ratio


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (1499, "1 kB"),
        (1500, "2 kB"),
        (741_000, "741 kB"),
        (999_499, "999 kB"),
        (999_500, "1.0 MB"),
        (285_226_600, "285.2 MB"),
        (999_949_999, "999.9 MB"),
        (999_950_000, "1.0 GB"),
        (1_300_000_000, "1.3 GB"),
        (2_500_000_000_000_000, "2500.0 TB"),
        (-285_226_600, "-285.2 MB"),
    ],
)
def test_sizes_are_decimal_and_never_show_a_thousand_of_a_unit(size, text):
    assert human(size) == text


@pytest.mark.parametrize(
    ("size", "other", "text"),
    [
        (1_300, 1_700, "0.76"),
        (994, 1000, "0.99"),
        (1000, 1000, "1.0"),
        (9_940, 1000, "9.9"),
        (9_960, 1000, "10"),
        (442_000, 3_200, "138"),
        (0, 10, "0.00"),
        (10, 0, ""),
    ],
)
def test_ratios_show_two_digits_or_the_whole_number(size, other, text):
    assert ratio(size, other) == (text and text + TIMES)
