"""A small application that asks a grader and hears what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from holdfast import Context, Holdfast
from holdfast.clock import MovableClock
from holdfast.requests import Request
from holdfast.store.plans import engine

SLA = {"writing": 1200, "speaking": 3600}


@dataclass
class Desk:
    """The application, its clock, and what its hooks were told: (what happened, the request)."""

    app: Holdfast
    clock: MovableClock
    grading: Any
    heard: list[tuple[str, Request[Any, Any]]] = field(default_factory=list)
    sent: list[Any] = field(default_factory=list)

    def told(self) -> list[str]:
        return [what for what, _ in self.heard]


def desk(url: str, clock: MovableClock | None = None, **options: Any) -> Desk:
    clock = clock or MovableClock()
    app = Holdfast(url, clock=clock, **options)
    made = Desk(app, clock, app.request_kind("grading", sla=SLA, soft=0.75))
    grading = made.grading

    @grading.completed
    def completed(request: Request[Any, Any], ctx: Context) -> None:
        made.heard.append(("completed", request))

    @grading.failed
    def failed(request: Request[Any, Any]) -> None:
        made.heard.append(("failed", request))

    @grading.delayed
    async def delayed(request: Request[Any, Any]) -> None:
        made.heard.append(("delayed", request))

    @app.handler("grading.request")
    def grade(body: dict[str, Any], ctx: Context) -> None:
        made.sent.append((ctx.id, body))

    return made


async def drained(desk: Desk) -> None:
    """What a worker does at the time that the clock shows."""
    desk.app.prepare()
    await desk.app.worker(until_idle=True).run()
    await desk.app.store.aclose()


__all__ = ["SLA", "Desk", "desk", "drained", "engine"]
