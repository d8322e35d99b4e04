"""Build backend: scikit-build-core, with zig from PyPI as the C++ compiler where the machine has none.

Set GROUNDMETRIC_COMPILER=zig to use zig although there is another compiler.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scikit_build_core import build as backend
from scikit_build_core.build import (  # noqa: F401  (hooks that need no compiler)
    build_sdist,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

_ZIG = "ziglang>=0.13"
_COMPILERS = ("c++", "g++", "clang++", "clang-cl", "cl")
# One command per system that installs a compiler.
_INSTALL = {
    "linux": "apt-get install g++   (Fedora: dnf install gcc-c++; without root: conda install -c conda-forge gxx)",
    "darwin": "xcode-select --install",
    "win32": "winget install LLVM.LLVM",
}
# Architectures for which zig's target is tested or documented.
_MACHINES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    return [*backend.get_requires_for_build_wheel(config_settings), *_zig_requirement()]


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    return [*backend.get_requires_for_build_editable(config_settings), *_zig_requirement()]


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    with _compiler():
        return backend.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    with _compiler():
        return backend.build_editable(wheel_directory, config_settings, metadata_directory)


def _needs_zig() -> bool:
    if os.environ.get("GROUNDMETRIC_COMPILER") == "zig":
        return True
    return not os.environ.get("CXX") and not any(map(shutil.which, _COMPILERS))


def _zig_requirement() -> list[str]:
    if not _needs_zig():
        return []
    if platform.machine().lower() not in _MACHINES:
        raise SystemExit(f"groundmetric: no C++ compiler was found; install one: {_advice()}")
    print(
        "groundmetric: no C++ compiler was found, so the build uses zig from PyPI (ziglang, about 3 minutes of CPU "
        f"time). A compiler builds faster: {_advice()}",
        file=sys.stderr,
        flush=True,
    )
    return [_ZIG]


def _advice() -> str:
    return _INSTALL.get(sys.platform, "g++ or clang++ with C++20")


@contextlib.contextmanager
def _compiler() -> Iterator[None]:
    """Provide zig under the names that CMake looks for, if there is no other compiler."""
    if not _needs_zig():
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        tools = {name: _script(Path(folder), name) for name in ("c++", "ar", "ranlib")}
        before = {name: os.environ.get(name) for name in ("CXX", "CMAKE_ARGS")}
        os.environ["CXX"] = str(tools["c++"])
        os.environ["CMAKE_ARGS"] = " ".join(
            [before["CMAKE_ARGS"] or "", *(f"-DCMAKE_{name.upper()}={tools[name]}" for name in ("ar", "ranlib"))]
        )
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def _script(folder: Path, name: str) -> Path:
    """Write an executable that runs a tool of zig.

    By default zig compiles for the processor that it runs on and for the newest glibc: both are set here.
    """
    target = f" -target {_MACHINES[platform.machine().lower()]}-linux-gnu.2.28" if sys.platform == "linux" else ""
    flags = f"{target} -mcpu=baseline" if name == "c++" else ""
    if sys.platform == "win32":
        tool = folder / f"zig-{name}.cmd"
        tool.write_text(f'@"{sys.executable}" -m ziglang {name}{flags} %*\n')
        return tool
    tool = folder / f"zig-{name}"
    tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ziglang {name}{flags} "$@"\n')
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    return tool
