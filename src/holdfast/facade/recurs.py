"""Recurring work: schedules in code, and those that are set at run time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ..model.schedule import CAP, GRACE, Overlap, Planned, Policy
from .publishes import Publishes

if TYPE_CHECKING:
    from ..rules.patterns import Rule


class Recurs(Publishes, Protocol):
    """`app.schedule`, `app.set_schedule`, `app.drop_schedule`."""

    def schedule(
        self, name: str, rule: Rule | str, type: str, body: object = None, *,
        misfire: Policy | None = None, cap: int | None = CAP, max_late: float | None = None, grace: float = GRACE,
        overlap: Overlap = "allow", jitter: int | None = None, stream: str | None = None, subject: str | None = None,
        headers: Mapping[str, Any] | None = None, queue: str | None = None,
    ) -> None:  # fmt: skip
        """Publish a message whenever the rule says: `app.schedule("nightly", daily("02:30"), "report.due")`.

        It is stored when a worker of this application starts, like subscriptions. `misfire` decides about occurrences
        that were not fired in time: "all" (of more than `cap` the newest), "latest", or "skip" (leaves out those later
        than `grace` seconds); `max_late`: those later than so many seconds are left out in any case. `overlap` decides
        while the one before has not ended: "allow", "queue", "skip", "replace". The other options are those of
        `publish` (docs/schedules.md).
        """
        made = self._recurring.define(
            name, rule, type, body,
            misfire=misfire, cap=cap, max_late=max_late, grace=grace, overlap=overlap, jitter=jitter, stream=stream,
            subject=subject, headers=headers, queue=queue,
        )  # fmt: skip
        self._recurring.declare(made)

    def set_schedule(
        self, name: str, rule: Rule | str, type: str, body: object = None, *, on: object = None,
        misfire: Policy | None = None, cap: int | None = CAP, max_late: float | None = None, grace: float = GRACE,
        overlap: Overlap = "allow", jitter: int | None = None, stream: str | None = None, subject: str | None = None,
        headers: Mapping[str, Any] | None = None, queue: str | None = None,
    ) -> Planned:  # fmt: skip
        """Set a schedule at run time, in your own transaction when `on` is your connection or session.

        `app.set_schedule(f"birthday/{user.id}", yearly(user.born, "09:00", zone=user.zone), "birthday.due", on=db)`.
        If the name exists, its schedule is changed, and no occurrence comes twice. Returns which occurrence is next.
        """
        made = self._recurring.define(
            name, rule, type, body,
            misfire=misfire, cap=cap, max_late=max_late, grace=grace, overlap=overlap, jitter=jitter, stream=stream,
            subject=subject, headers=headers, queue=queue,
        )  # fmt: skip
        return self._recurring.put(made, on)

    async def aset_schedule(
        self, name: str, rule: Rule | str, type: str, body: object = None, *, on: object = None,
        misfire: Policy | None = None, cap: int | None = CAP, max_late: float | None = None, grace: float = GRACE,
        overlap: Overlap = "allow", jitter: int | None = None, stream: str | None = None, subject: str | None = None,
        headers: Mapping[str, Any] | None = None, queue: str | None = None,
    ) -> Planned:  # fmt: skip
        """Like `set_schedule`, for async code and async connections or sessions."""
        made = self._recurring.define(
            name, rule, type, body,
            misfire=misfire, cap=cap, max_late=max_late, grace=grace, overlap=overlap, jitter=jitter, stream=stream,
            subject=subject, headers=headers, queue=queue,
        )  # fmt: skip
        return await self._recurring.aput(made, on)

    def drop_schedule(self, name: str, *, on: object = None) -> bool:
        """End a schedule that was set at run time. Its published messages stay. False: there was none of that name."""
        return self._recurring.drop(name, on)

    async def adrop_schedule(self, name: str, *, on: object = None) -> bool:
        """Like `drop_schedule`, for async code and async connections or sessions."""
        return await self._recurring.adrop(name, on)
