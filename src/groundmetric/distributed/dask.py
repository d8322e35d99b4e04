"""Errands on a Dask cluster: workers are asked again for what they remember, and replaced when they fail.

While there are no workers, the errands are done here: after one short wait, and one warning.
"""

from __future__ import annotations

import contextlib
import queue
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from .. import __version__
from .joblib import warn_of_failure
from .protocol import Errand

# Seconds for which the list of workers is believed.
_FRESH = 5.0
# If nothing comes in for so many seconds, and so many times the longest errand, what is left is sent to others too.
# Until the first answer it may be more: new workers import and compile.
_PATIENCE, _TIMES, _FIRST_PATIENCE = 30.0, 5.0, 300.0
# Seconds of silence after which we look whether the workers are still there.
_GLANCE = 2.0
# Seconds that a cluster without workers is given to bring some.
_DESERTED = 5.0
# How often an errand that fails is sent to others before it is done here.
_TRIES = 2


class DaskPlace:
    """The workers of a Dask client."""

    remembers = True

    def __init__(self, client: Any) -> None:
        self._client = client
        self._known: dict[str, int] = {}
        self._looked = -_FRESH
        self._answered = False
        self._slow: set[str] = set()
        self._noted: list[tuple[Callable[[Any], Any], Any]] = []
        self._same: set[str] = set()  # workers that have this version of the package
        self._mute: set[str] = set()  # workers that did not say
        self._lost = False  # the scheduler; a place serves one call, and does not wait for it again
        self._deserted = False  # there are no workers, and they were waited for

    def slots(self) -> dict[str, int]:
        """Workers that have not kept us waiting, with their threads.

        Raises OtherVersion if some have another version of this package.
        """
        if time.monotonic() - self._looked > _FRESH and not self._lost:
            try:
                found = dict(self._client.nthreads())
                versions = self._versions(found.keys() - self._same - self._mute)
            except Exception as error:
                self._lose(error)
                return {}
            _check_versions(versions)
            self._same |= versions.keys()
            self._known = {worker: threads for worker, threads in found.items() if worker in self._same}
            self._looked = time.monotonic()
            self._deserted = self._deserted and not self._known
        quick = {worker: threads for worker, threads in self._known.items() if worker not in self._slow}
        return quick or self._known

    def _versions(self, workers: set[str]) -> dict[str, Any]:
        """The version that each of these workers has; those that do not say are not asked again."""
        if not workers:
            return {}
        run = self._client._run  # as client.run, which has no limit of time: a worker that hangs would hold up all
        try:
            versions = self._client.sync(
                run, _question(), workers=sorted(workers), on_error="ignore", callback_timeout=_PATIENCE
            )
        except TimeoutError:
            versions = {}
        self._mute |= workers - versions.keys()
        return versions

    def _lose(self, error: Exception) -> None:
        if not self._lost:
            _warn_of_loss(error)
        self._lost, self._known = True, {}

    def _desert(self) -> None:
        """There are no workers: from now on work is done here at once, until there are some."""
        self._deserted = True
        warnings.warn(
            f"the cluster has had no workers for {_DESERTED:g} s: going on in this process until it has some; start "
            "workers, or wait for them with client.wait_for_workers(1)",
            RuntimeWarning,
            stacklevel=3,
        )

    def run(self, function: Callable[[Any], Any], errands: list[Errand]) -> Iterator[tuple[int, Any]]:
        run = _Run(self._client, function, errands)
        try:
            yield from self._answers(run)
        finally:
            run.cancel()

    def _answers(self, run: _Run) -> Iterator[tuple[int, Any]]:
        if not self.slots() and (self._lost or self._deserted):
            yield from run.finish_here()
            return
        try:
            for number, errand in enumerate(run.errands):
                run.send(number, [] if errand.worker is None else [errand.worker])
        except Exception as error:  # the scheduler cannot be reached
            self._lose(error)
            yield from run.finish_here()
            return
        patience = max(_PATIENCE, _TIMES * max((errand.seconds for errand in run.errands), default=0.0))
        if not self._answered:
            patience = max(patience, _FIRST_PATIENCE)
        glance = min(_GLANCE, patience, _DESERTED)
        waited = absent = 0.0
        while run.left:
            try:
                future = run.came_in.get(timeout=glance)
            except queue.Empty:
                waited += glance
                self._send_orphans(run)
                absent = 0.0 if self._known else absent + glance
                if absent >= _DESERTED and not self._lost:
                    self._desert()
                if self._lost or self._deserted or (waited >= patience and not self._ask_others(run)):
                    yield from run.finish_here()
                continue
            waited = absent = 0.0
            yield from self._take(run, future)

    def _take(self, run: _Run, future: Any) -> Iterator[tuple[int, Any]]:
        number = run.sent.pop(future, None)
        if number not in run.left:  # a copy, whose twin was quicker
            return
        try:
            answer = future.result(timeout=_PATIENCE)
        except Exception as error:
            yield from self._recover(run, number, error)
            return
        run.left.discard(number)
        self._answered = True
        yield number, answer

    def _recover(self, run: _Run, number: int, error: Exception) -> Iterator[tuple[int, Any]]:
        """Send an errand that failed to others; after that, do it here."""
        if isinstance(error, OtherVersion):
            raise error
        if type(error).__name__ == "KilledWorker":
            raise RuntimeError(
                f"the same pairs ended several workers ({error}), probably for want of memory: give workers more "
                "memory or fewer threads"
            ) from error
        warn_of_failure(error)
        self._looked = -_FRESH
        run.tries[number] += 1
        try:
            if run.tries[number] <= _TRIES:
                failed = run.errands[number].worker
                run.send(number, [worker for worker in self.slots() if worker != failed])
                return
        except Exception as lost:
            self._lose(lost)
        yield number, run.here(number)

    def _send_orphans(self, run: _Run) -> None:
        """Send to anyone what waits for workers that are gone: the scheduler might wait for them for ever."""
        self._looked = -_FRESH
        living = self.slots()
        for number in sorted(run.left) if living else ():
            if run.asked[number] and not living.keys() & set(run.asked[number]):
                run.send(number, [])

    def _ask_others(self, run: _Run) -> bool:
        """Send copies of what is overdue to workers that are not working on it; False if there are none."""
        if run.asked_others:
            return False
        run.asked_others = True
        try:
            overdue = {future.key for future, number in run.sent.items() if number in run.left}
            working = self._client.processing()
            slow = {worker for worker, keys in working.items() if overdue & {str(key) for key in keys}}
            self._slow |= slow
            others = [worker for worker in self.slots() if worker not in slow]
            warnings.warn(
                f"{len(slow)} workers do not answer: their work is done again elsewhere", RuntimeWarning, stacklevel=3
            )
            if not others:
                return False
            for number in sorted(run.left):
                run.send(number, others)
        except Exception as error:
            self._lose(error)
            return False
        return True

    def at_the_end(self, function: Callable[[Any], Any], message: Any) -> None:
        self._noted.append((function, message))

    def close(self) -> None:
        for function, message in self._noted:
            with contextlib.suppress(Exception):
                self._client.run(_call, function, message, wait=False, on_error="ignore")
        self._noted.clear()


class _Run:
    """The errands of one call, and what is known of each."""

    def __init__(self, client: Any, function: Callable[[Any], Any], errands: list[Errand]) -> None:
        self.client, self.function, self.errands = client, function, errands
        self.left = set(range(len(errands)))
        self.tries = [0] * len(errands)
        self.asked: list[list[str]] = [[] for _ in errands]  # whom each was sent to last; none: anyone
        self.sent: dict[Any, int] = {}
        self.came_in: queue.Queue = queue.Queue()
        self.asked_others = False

    def send(self, number: int, workers: list[str]) -> None:
        """To one of these workers if they live, else to any."""
        import dask

        # A message is no graph; that it is large is known, and the reason for sending it away.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}):
            future = self.client.submit(
                do_errand,
                self.function,
                self.errands[number].message,
                __version__,
                pure=False,
                workers=workers or None,
                allow_other_workers=bool(workers),
            )
        self.sent[future] = number
        self.asked[number] = workers
        future.add_done_callback(self.came_in.put)

    def here(self, number: int) -> Any:
        self.left.discard(number)
        return self.function(self.errands[number].message)

    def finish_here(self) -> Iterator[tuple[int, Any]]:
        for number in sorted(self.left):
            yield number, self.here(number)

    def cancel(self) -> None:
        left = [future for future in self.sent if not future.done()]
        with contextlib.suppress(Exception):
            if left:
                self.client.cancel(left)


async def _call(function: Callable[[Any], Any], message: Any) -> None:
    function(message)


class OtherVersion(RuntimeError):
    """A worker has another version of this package, or none: its numbers might be others."""


def do_errand(function: Callable[[Any], Any], message: Any, version: str) -> Any:
    """Runs on the worker, which may have joined since we asked for versions."""
    if version != __version__:
        _check_versions({"one that has joined": __version__}, here=version)
    return function(message)


def _question() -> Callable[[], Any]:
    """Asks a worker for its version. Made here, it travels as code, and needs no package where it arrives."""

    def version() -> Any:
        try:
            import groundmetric
        except ImportError:
            return None
        return groundmetric.__version__

    return version


def _check_versions(versions: dict[str, Any], here: str = __version__) -> None:
    other = {worker: version for worker, version in versions.items() if version != here}
    if other:
        worker, version = sorted(other.items())[0]
        has = "no groundmetric" if version is None else f"groundmetric {version}"
        raise OtherVersion(
            f"workers do not have groundmetric {here}, as this process has: {worker} has {has} ({len(other)} of "
            f"{len(versions)} differ); install the same version everywhere, or keep the work here with n_jobs=1"
        )


def _warn_of_loss(error: Exception) -> None:
    warnings.warn(
        f"the cluster cannot be reached ({type(error).__name__}: {error}): going on in this process",
        RuntimeWarning,
        stacklevel=3,
    )
