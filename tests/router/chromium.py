"""A headless Chromium of a test's own, and what a screenshot of it shows. Debian's browser and driver; nothing is
downloaded.
"""

from __future__ import annotations

import os
import shutil
import struct
import zlib
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

SECONDS = 180.0  # that a script of a test may take on a busy host
BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--force-device-scale-factor=1",
)  # fmt: skip


def open_chromium(profile: Path) -> Any:
    """A driver of selenium with an empty profile; skips where something is missing, and says so. With
    CHROMIUM=required in the environment that fails."""
    try:
        from selenium import webdriver
    except ImportError:
        _missing("needs the distribution selenium")
    if BROWSER is None or DRIVER is None:
        _missing("needs chromium and chromedriver (apt-get install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.set_script_timeout(SECONDS)
    return driver


def _missing(what: str) -> NoReturn:
    if os.environ.get("CHROMIUM") == "required":
        pytest.fail(what)
    pytest.skip(what)


def pixels(png: bytes) -> np.ndarray[Any, Any]:
    """Rows × columns × red, green, blue of what Chromium makes: 8 bits, not interlaced. By the PNG specification."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, data, width, height, channels = 8, b"", 0, 0, 0
    while at < len(png):
        length, kind = struct.unpack_from(">I4s", png, at)
        body = png[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", body)
            channels = {2: 3, 6: 4}[colour]
            assert (depth, interlaced) == (8, 0)
        elif kind == b"IDAT":
            data += body
        at += 12 + length
    lines = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, 1 + width * channels)
    found = np.zeros((height, width, channels), np.uint8)
    above = np.zeros((width, channels), np.uint8)
    for line, row in zip(lines, found, strict=True):
        row[:] = _unfiltered(line[0], line[1:].reshape(width, channels), above)
        above = row
    return found[:, :, :3]


def _unfiltered(kind: int, line: np.ndarray[Any, Any], above: np.ndarray[Any, Any]) -> Any:
    if kind == 0:
        return line
    if kind == 1:
        return np.cumsum(line, axis=0, dtype=np.uint8)
    if kind == 2:
        return line + above
    row, left, corner = [], [0] * line.shape[1], [0] * line.shape[1]
    for values, over in zip(line.tolist(), above.tolist(), strict=True):
        if kind == 3:
            left = [(v + (a + b) // 2) & 255 for v, a, b in zip(values, left, over, strict=True)]
        else:
            left = [(v + _paeth(a, b, c)) & 255 for v, a, b, c in zip(values, left, over, corner, strict=True)]
        corner = over
        row.append(left)
    return np.array(row, np.uint8)


def _paeth(left: int, above: int, corner: int) -> int:
    guess = left + above - corner
    return min((left, above, corner), key=lambda value: abs(guess - value))  # the first of equal ones, as specified
