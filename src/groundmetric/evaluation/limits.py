"""A child process with a time and a memory limit: what goes over is ended, and the run goes on."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import joblib
from joblib.externals.loky import ProcessPoolExecutor
from tqdm import tqdm

from .running import OK, OUT_OF_MEMORY, OUT_OF_TIME

_THREAD_SETTINGS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class Child:
    """A process that answers one call at a time; started when it is needed, and anew after it had to be ended.

    Parameters
    ----------
    time_limit : seconds per call, or None
    memory_limit : megabytes that a call may allocate beyond what the process holds already, or None
        Kept by the system where it can (Linux): an allocation beyond it fails.
    n_siblings : children that run at the same time, among which the cores are divided
    """

    def __init__(
        self, time_limit: float | None = None, memory_limit: float | None = None, *, n_siblings: int = 1
    ) -> None:
        self.time_limit, self.memory_limit = time_limit, memory_limit
        threads = str(max(1, joblib.cpu_count() // n_siblings))
        self._settings = {name: os.environ.get(name, threads) for name in _THREAD_SETTINGS}
        self._executor: ProcessPoolExecutor | None = None

    def call(self, function: Callable, *arguments: Any) -> tuple[str, Any]:
        """Status and answer; the answer is None unless the status is "ok"."""
        if self._executor is None:
            self._executor = ProcessPoolExecutor(max_workers=1, env=self._settings)
            self._executor.submit(_wake).result()  # the time that Python needs to start is nobody's fault
        future = self._executor.submit(_within, self.memory_limit, function, arguments)
        try:
            return OK, future.result(self.time_limit)
        except TimeoutError:
            self.close()
            return OUT_OF_TIME, None
        except BrokenProcessPool as error:
            self.close()
            return _cause_of_death(str(error)), None
        except MemoryError:
            return OUT_OF_MEMORY, None
        except Exception as error:
            return f"error: {type(error).__name__}: {error}", None

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True, kill_workers=True)
            self._executor = None


def check_limits(time_limit: float | None, memory_limit: float | None) -> None:
    for name, limit in (("time_limit", time_limit), ("memory_limit", memory_limit)):
        if limit is not None and not limit > 0:
            raise ValueError(f"{name} is {limit!r}: expected a number above 0, or None")
    if memory_limit is not None and not sys.platform.startswith("linux"):
        raise ValueError(f"memory_limit is {memory_limit}, but {sys.platform} does not keep such limits: leave it out")


def _cause_of_death(message: str) -> str:
    """The system ends processes by SIGKILL when memory runs out; the message lists how workers ended."""
    if "SIGKILL" in message:
        return OUT_OF_MEMORY
    ends = re.search(r"exit codes of the workers are \{(.*?)\}", message)
    return f"error: the process died ({ends.group(1) if ends else message})"


def _wake() -> None:
    """Import what every call needs, and let progress bars do without a lock between processes: one that is ended
    could not give it back."""
    from .. import distances  # noqa: F401

    tqdm.set_lock(threading.RLock())


def _within(memory_limit: float | None, function: Callable, arguments: tuple) -> Any:
    """Call the function while no more than so many megabytes may be allocated on top of what is there."""
    if memory_limit is None:
        return function(*arguments)
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (_private_bytes() + int(memory_limit * 1e6), hard))
    try:
        return function(*arguments)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _private_bytes() -> int:
    """What RLIMIT_DATA counts: memory that is this process's own, not files mapped into it."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmData:"))
