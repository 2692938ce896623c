"""The GPU of this machine, asked of the driver itself; and where an empty environment finds the driver."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_DRIVER = "libcuda.so.1"
# CUdevice_attribute in cuda.h.
_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76


@dataclass(frozen=True, slots=True)
class Device:
    """The first GPU: its name, its compute capability ("9.0"), the driver's version and the CUDA it offers."""

    name: str
    capability: str
    driver: str
    cuda: str

    @property
    def slug(self) -> str:
        """The name as a file name takes it: "nvidia-h200"."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")


def find() -> Device | str:
    """The GPU, or a sentence that says why there is none."""
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError as error:
        return f"no NVIDIA driver ({error})"
    status = driver.cuInit(0)
    if status:
        return f"the driver finds no usable GPU (cuInit returns {status})"
    count = ctypes.c_int()
    driver.cuDeviceGetCount(ctypes.byref(count))
    if not count.value:
        return "the driver offers no GPU"
    name = ctypes.create_string_buffer(256)
    driver.cuDeviceGetName(name, len(name), 0)
    major, minor, version = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    driver.cuDeviceGetAttribute(ctypes.byref(major), _CAPABILITY_MAJOR, 0)
    driver.cuDeviceGetAttribute(ctypes.byref(minor), _CAPABILITY_MINOR, 0)
    driver.cuDriverGetVersion(ctypes.byref(version))
    cuda = f"{version.value // 1000}.{version.value % 1000 // 10}"
    return Device(name.value.decode(), f"{major.value}.{minor.value}", _driver_version(), cuda)


def _driver_version() -> str:
    try:
        management = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return "unknown"
    text = ctypes.create_string_buffer(80)
    if management.nvmlInit_v2() or management.nvmlSystemGetDriverVersion(text, len(text)):
        return "unknown"
    return text.value.decode()


def environment() -> dict[str, str]:
    """The environment that a GPU program needs here: empty, but where only LD_LIBRARY_PATH leads to the driver."""
    load = [sys.executable, "-I", "-c", f"import ctypes; ctypes.CDLL({_DRIVER!r})"]
    if subprocess.run(load, env={}, capture_output=True, check=False).returncode == 0:
        return {}
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    match = re.search(r"(/\S*/)libcuda\.so", maps)
    return {"LD_LIBRARY_PATH": os.path.normpath(match[1])} if match else {}
