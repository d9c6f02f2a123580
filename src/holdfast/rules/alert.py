"""When an alert is raised and when it is over. An alert is about one thing, its subject, and has episodes.

    quiet   ── the value has reached the threshold ──────────────────►  raised: reported once
    raised  ── below 0.8 of the threshold ───────────────────────────►  calm: nothing is reported yet
    calm    ── reached 0.8 of the threshold again ───────────────────►  raised: not reported, it is the same episode
    calm    ── for long enough ──────────────────────────────────────►  quiet: the all-clear is reported once

So a value that swings around its threshold is reported once, not every time. An alert that was not measured (its query
failed) stays as it is. Time (`now`) is the database's and an argument. This module stores and sends nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from ..model.alert import AlertChanged, AlertOver, AlertRaised, Episode, Measure, Verdict

RELEASE = 0.8  # of the threshold: below it is calm
PAUSE_MIN, PAUSE_MAX = 60.0, 900.0  # seconds between two tries to send
GIVE_UP = 86_400.0  # seconds after which news that no sink accepted is no longer sent


def judge(
    episodes: Iterable[Episode],
    measured: Mapping[str, Sequence[Measure]],
    thresholds: Mapping[str, float],
    calm: float,
    now: datetime,
) -> list[Verdict]:
    """How the measured alerts change. A subject that is missing from the measures of its alert has the value 0."""
    known = {(each.name, each.subject): each for each in episodes}
    found = {(name, each.subject): each for name, measures in measured.items() for each in measures}
    verdicts: list[Verdict] = []
    for name, subject in sorted({*known, *found}):
        episode, measure = known.get((name, subject)), found.get((name, subject))
        if name not in measured or name not in thresholds:
            continue
        value, threshold = 0.0 if measure is None else measure.value, thresholds[name]
        if episode is not None:
            verdicts += _go_on(episode, value, threshold, calm, now)
        elif measure is not None and value >= threshold:
            begun = Episode(name, subject, now, value, value)
            verdicts.append(AlertRaised(begun, threshold, measure.text, measure.details))
    return verdicts


def _go_on(
    episode: Episode, value: float, threshold: float, calm: float, now: datetime
) -> list[AlertChanged | AlertOver]:
    if value >= RELEASE * threshold:
        after = replace(episode, value=value, peak=max(value, episode.peak), calm_since=None)
        # Storing every value would write a row at every check: only values that change the outcome are stored.
        is_news = episode.calm_since is not None or value > episode.peak
        return [AlertChanged(episode, after)] if is_news else []
    if episode.calm_since is None:
        return [AlertChanged(episode, replace(episode, value=value, calm_since=now))]
    if (now - episode.calm_since).total_seconds() < calm:
        return []
    return [AlertOver(episode, value, threshold, _all_clear(episode, now))]


def _all_clear(episode: Episode, now: datetime) -> str:
    lasted = (now - episode.since).total_seconds()
    about = f" of {episode.subject}" if episode.subject else ""
    return f"Over: {episode.name}{about}, after {length(lasted)}; the highest value was {episode.peak:g}."


def length(seconds: float) -> str:
    """A length of time for people."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def pause(tries: int) -> float:
    """Seconds until news is sent again, after the given number of tries of which the last may have failed."""
    return float(min(PAUSE_MAX, PAUSE_MIN * 2.0 ** min(max(tries - 1, 0), 10)))
