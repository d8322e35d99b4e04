"""Errands through joblib: to its own processes, or to Ray and others that register with it."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import joblib
from joblib.parallel import get_active_backend

from .protocol import Errand

# How often what has not come back is sent anew before it is done here.
_TRIES = 3


class JoblibPlace:
    """The backend that ``joblib.parallel_config`` has chosen. Errands go to any of its workers."""

    remembers = False

    def __init__(self, n_jobs: int | None) -> None:
        self._n_jobs = n_jobs
        self._workers: joblib.Parallel | None = None  # while they are kept

    def slots(self) -> dict[str, int]:
        return {"": joblib.effective_n_jobs(self._n_jobs)}

    def run(self, function: Callable[[Any], Any], errands: list[Errand]) -> Iterator[tuple[int, Any]]:
        left = set(range(len(errands)))
        for _ in range(_TRIES):
            try:
                for number, done, answer in self._called()(
                    joblib.delayed(attempt)(function, number, errands[number].message) for number in sorted(left)
                ):
                    if done:
                        left.discard(number)
                        yield number, answer
                    else:
                        warn_of_failure(answer)
            except Exception as error:  # a dead worker makes joblib give up the whole call
                warn_of_failure(error)
                self._dismiss()
            except BaseException:  # interrupted, or nobody wants the rest: they may not be done
                self._dismiss()
                raise
            if not left:
                return
        for number in sorted(left):
            yield number, function(errands[number].message)

    def _called(self) -> joblib.Parallel:
        """The workers, called together at first: Ray takes seconds for that."""
        if self._workers is None:
            # What came in before a worker dies is not lost if answers are given as they come; Ray cannot.
            as_they_come = getattr(get_active_backend()[0], "supports_return_generator", False)
            manner = "generator_unordered" if as_they_come else "list"
            # Arrays that are mapped from files would be read-only, and kernels compiled anew for them: max_nbytes.
            workers = joblib.Parallel(self._n_jobs, return_as=manner, batch_size=1, max_nbytes=None)
            self._workers = workers.__enter__()
        return self._workers

    def _dismiss(self) -> None:
        workers, self._workers = self._workers, None
        if workers is not None:
            with contextlib.suppress(Exception):  # they may be gone already
                workers.__exit__(None, None, None)

    def at_the_end(self, function: Callable[[Any], Any], message: Any) -> None:
        """Workers of joblib remember nothing."""

    def close(self) -> None:
        self._dismiss()


def attempt(function: Callable[[Any], Any], number: int, message: Any) -> tuple[int, bool, Any]:
    """The answer, or the error as a value: raised, it would end the errands of all."""
    try:
        return number, True, function(message)
    except Exception as error:
        return number, False, error


def warn_of_failure(error: BaseException) -> None:
    warnings.warn(
        f"a worker failed ({type(error).__name__}: {error}): its work is done again elsewhere",
        RuntimeWarning,
        stacklevel=3,
    )
