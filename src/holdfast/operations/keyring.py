"""Keys: which ones seal the stored bodies, and sealing bodies again with the first key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from ..bodies.keys import SEALED, VARIABLE, Keys
from ..errors import BodySealed, UsageError
from ..store.plans import keys
from ..store.plans.audit import Entry
from .desk import Desk, Tally, log

BATCH = 50
BATCHES_MAX = 1_000_000
KINDS = {
    "message": "pending",
    "dead": "dead",
    "death": "edited",
    "event": "events",
    "journal": "journals",
    "result": "outcomes",
    "status": "status",
    "schedule": "schedules",
    "request": "requests",
    "request_result": "results",
}


@dataclass(frozen=True, slots=True)
class SealedWith:
    """How many bodies of each kind are sealed with a key. `key` is None: not sealed."""

    key: str | None
    kind: str
    count: int


@dataclass(frozen=True, slots=True)
class Rotated:
    """What a rotation did. `unopened`: bodies whose key is missing here, or that do not open; they are unchanged."""

    changed: int
    unopened: int
    left: int  # still sealed with another key than the first


class Keyring:
    """Questions and commands about keys."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    @property
    def names(self) -> tuple[str, ...]:
        """The keys of this process; the first one seals."""
        return () if self._desk.keys is None else self._desk.keys.names

    def reveal(self, id: UUID, type: str, body: str) -> str:
        if not body.startswith(SEALED):
            return body
        return self._keys("opened").open(id, type, body)

    def counts(self) -> Sequence[SealedWith]:
        """Which keys are in use. Reads every body, so it is slow."""
        rows = self._desk.ask(keys.counts(SEALED))
        return [SealedWith(key, KINDS[place], count) for place, key, count in rows]

    def rotate(self, *, plain: bool = False, progress: Callable[[int], None] | None = None) -> Rotated:
        """Seal with the first key the bodies that are sealed with another; with `plain` also unsealed ones."""
        # Imported here: few keys are ever rotated, and it brings all of orchestrations.
        from ..orchestrations.messages import bound

        ours, desk = self._keys("sealed again"), self._desk
        marks = {"mark": ours.mark, "sealed": SEALED}

        def seal(what: UUID | str, type: str, old: str) -> str | None:
            id = what if isinstance(what, UUID) else bound(what)
            try:
                return ours.seal(id, type, ours.open(id, type, old) if old.startswith(SEALED) else old)
            except BodySealed:
                return None

        tally = Tally(desk, Entry("keys.rotate", target=ours.names[0]))
        changed = unopened = 0
        for bodies in keys.TABLES.values():
            place = bodies.start
            for _ in range(BATCHES_MAX):
                batch = tally.command(
                    "Bodies",
                    lambda batch: (batch.changed, ()),
                    keys.reseal,
                    bodies,
                    place,
                    marks,
                    plain,
                    BATCH,
                    seal,
                )
                changed, unopened = changed + batch.changed, unopened + batch.unopened
                if progress is not None:
                    progress(changed)
                if batch.place is None:
                    break
                place = batch.place
        current = ours.names[0]
        left = sum(each.count for each in self.counts() if each.key not in (None, current))
        log.info(
            "keys.rotated",
            "sealed %(count)d bodies with key %(key)s; %(unopened)d could not be opened, %(left)d are left",
            count=changed, key=current, unopened=unopened, left=left,
        )  # fmt: skip
        return Rotated(changed, unopened, left)

    def _keys(self, what: str) -> Keys:
        if self._desk.keys is None:
            raise UsageError(
                f"Nothing can be {what} without keys: set {VARIABLE}, or give keys= to the application."
            )
        return self._desk.keys
