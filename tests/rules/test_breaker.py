"""A breaker as a value: when it opens, when it lets a trial through, when it closes, and that it always does."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidSettings
from holdfast.rules.breaker import BAD, GOOD, VOID, Policy, State, Switch

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CLOSED, OPEN, HALF_OPEN = State.CLOSED, State.OPEN, State.HALF_OPEN


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def opened(policy: Policy | None = None) -> Switch:
    switch = Switch(policy or Policy()).after(BAD * 10, NOW)
    assert switch.state is OPEN
    return switch


def half_opened() -> Switch:
    switch = opened().take(later(30))
    assert switch is not None
    return switch


# --- Closed and open --------------------------------------------------------------------------------------------------


@pytest.mark.covers("V51")
def test_the_states_have_the_names_of_the_first_design() -> None:
    assert [each.value for each in State] == ["closed", "open", "half_open"]


@pytest.mark.covers("V52")
def test_closed_lets_everything_through_and_counts_failures() -> None:
    switch = Switch().after("..x.x", NOW)
    assert (switch.state, switch.room(NOW), switch.allows(NOW), switch.retry_in(NOW)) == (
        CLOSED,
        None,
        True,
        0.0,
    )
    assert (switch.failures, len(switch.calls)) == (2, 5)


@pytest.mark.covers("V53", "V54")
@pytest.mark.parametrize(
    ("calls", "state"),
    [
        ("x" * 9, CLOSED),  # nine say nothing, even if all failed
        ("x" * 10, OPEN),
        ("." * 5 + "x" * 5, CLOSED),  # exactly half is not more than half
        ("." * 5 + "x" * 6, OPEN),
        ("." * 10 + "x" * 10, CLOSED),
        ("." * 9 + "x" * 11, OPEN),
        ("xxxxxx....", CLOSED),  # judged when a call fails: a success opens nothing
        ("xxxxxx....x", OPEN),
    ],
)
def test_it_opens_when_more_than_half_failed_and_at_least_ten_were_seen(calls: str, state: State) -> None:
    switch = Switch()
    for call in calls:
        switch = switch.after(call, NOW, era=0)
    assert switch.state is state


@pytest.mark.covers("X29")
def test_only_the_last_twenty_calls_are_judged() -> None:
    """However many went well before: eleven failures in the last twenty open it, and forgotten ones do not."""
    assert Switch().after(GOOD * 1000 + BAD * 10, NOW).state is CLOSED
    assert Switch().after(GOOD * 1000 + BAD * 11, NOW).state is OPEN
    old = Switch().after(("x." * 5) + GOOD * 20, NOW)
    assert (old.failures, old.calls) == (0, GOOD * 20)


@pytest.mark.covers("V55")
def test_open_refuses_and_says_for_how_long() -> None:
    switch = opened()
    assert not switch.allows(NOW)
    assert switch.take(NOW) is None
    assert (switch.room(later(10)), switch.retry_in(later(10))) == (0, 20.0)


@pytest.mark.covers("V56")
def test_the_cooldown_is_thirty_seconds_since_the_last_failure() -> None:
    switch = opened()
    assert not switch.allows(later(29.999))
    assert switch.allows(later(30))
    # Calls that were under way when it opened come back as failures: the cooldown begins anew.
    switch = switch.after(BAD, later(5), era=0).after(GOOD, later(6), era=0)
    assert (switch.state, switch.until) == (OPEN, later(35))
    assert switch.after(BAD, later(7), era=-3).until == later(35)


def test_what_opened_it_is_told() -> None:
    switch = Switch().after("....." + "xxxxxx", NOW, why="ConnectTimeout")
    assert switch.why == "6 of the last 11 calls failed: ConnectTimeout"
    assert switch.opened_at == NOW


# --- Half open --------------------------------------------------------------------------------------------------------


@pytest.mark.covers("V57", "X28")
def test_three_trials_are_let_through_and_no_fourth() -> None:
    switch: Switch | None = opened()
    taken = 0
    while switch is not None and taken < 10:
        switch = switch.take(later(30))
        taken += switch is not None
    assert taken == 3


@pytest.mark.covers("V58", "X27")
def test_half_open_starts_afresh_and_closes_when_all_three_trials_went_well() -> None:
    switch = half_opened()
    assert (switch.state, switch.calls, switch.successes) == (HALF_OPEN, "", 0)
    for left in (2, 1):
        switch = switch.after(GOOD, later(31))
        assert (switch.state, switch.successes) == (HALF_OPEN, 3 - left)
        taken = switch.take(later(31))
        assert taken is not None
        switch = taken
    switch = switch.after(GOOD, later(31))
    assert (switch.state, switch.calls, switch.successes, switch.until) == (CLOSED, "", 0, None)


@pytest.mark.covers("X27")
def test_more_than_four_fifths_of_the_trials_must_go_well() -> None:
    policy = Policy(trials=10)
    switch = opened(policy)
    for _ in range(10):
        switch = switch.take(later(30)) or switch
    switch = switch.after(GOOD * 8, later(31))
    assert switch.state is HALF_OPEN
    assert switch.after(GOOD, later(31)).state is CLOSED


@pytest.mark.covers("V59")
def test_one_failed_trial_opens_it_again_for_a_whole_cooldown() -> None:
    switch = half_opened().after(GOOD + GOOD + BAD, later(40), why="HTTP 503")
    assert (switch.state, switch.until, switch.why) == (OPEN, later(70), "a trial failed: HTTP 503")


@pytest.mark.covers("X27")
def test_results_from_before_do_not_count_as_trials() -> None:
    switch = half_opened()
    assert switch.after(GOOD * 5 + BAD * 5, later(31), era=0) == switch
    closed = switch.reset()
    assert closed.after(BAD * 20, later(31), era=0) == closed


def test_a_trial_that_says_nothing_gives_its_place_back() -> None:
    switch = half_opened()
    assert switch.trials_left == 2
    assert switch.after(VOID, later(31)).trials_left == 3
    assert switch.after(VOID * 5, later(31)).trials_left == 3
    assert Switch().after(VOID * 5, NOW) == Switch()


def test_trials_that_never_come_back_are_replaced_one_for_each_cooldown() -> None:
    """Three processes took a trial each and were killed: the breaker must not stay half open for ever."""
    switch = half_opened()
    for _ in range(2):
        switch = switch.take(later(31)) or switch
    assert (switch.trials_left, switch.room(later(60.9))) == (0, 0)
    assert switch.retry_in(later(32)) == 1.0
    for n in range(3):
        at = later(61 + 30 * n)
        assert switch.room(at) == 1
        taken = switch.take(at)
        assert taken is not None
        assert taken.take(at) is None
        switch = taken.after(GOOD, at)
    assert switch.state is CLOSED


# --- Retry-After and operators ----------------------------------------------------------------------------------------


def test_a_retry_after_opens_it_until_then_and_at_most_an_hour() -> None:
    assert Switch().asked_to_wait(5, NOW).until == later(5)
    assert Switch().asked_to_wait(10**9, NOW).until == later(3600)
    switch = opened().asked_to_wait(7, NOW)
    assert switch.until == later(30)  # never earlier than it would be
    assert switch.asked_to_wait(90, NOW).until == later(90)
    trial = half_opened().asked_to_wait(7, later(31))
    assert (trial.state, trial.until) == (OPEN, later(61))
    assert Switch(era=9).asked_to_wait(5, NOW, era=8) == Switch(era=9)
    assert Switch(era=9).asked_to_wait(5, NOW, era=3) == Switch(era=9)


def test_what_an_operator_forces_no_call_changes() -> None:
    switch = Switch().trip(NOW, why="maintenance")
    for day in range(3):
        assert switch.room(later(86_400 * day)) == 0
    assert switch.after(BAD, later(1)).asked_to_wait(100, later(1)) == switch
    assert (switch.retry_in(NOW), switch.why) == (30.0, "maintenance")
    switch = switch.force_closed("it lies")
    switch = switch.after(BAD * 100, NOW).asked_to_wait(100, NOW)
    assert (switch.state, switch.allows(NOW), switch.failures) == (CLOSED, True, 20)
    switch = switch.reset()
    assert (switch.forced, switch.calls) == (False, "")
    assert switch.after(BAD * 10, NOW).state is OPEN


def test_an_operator_opens_it_for_a_while() -> None:
    switch = Switch().trip(NOW, 600)
    assert (switch.room(later(599)), switch.room(later(600))) == (0, 3)


@pytest.mark.parametrize(
    "wrong",
    [
        {"window": 0},
        {"window": 2.5},
        {"calls_min": 21},
        {"trials": 0},
        {"opens_above": 1},
        {"closes_above": 1.0},
        {"opens_above": -0.1},
        {"cooldown": 0},
        {"cooldown": "30"},
        {"colour": 1},
    ],
)
def test_a_policy_that_could_never_open_or_close_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings):
        Policy().but(**wrong)


# --- Against the first design -----------------------------------------------------------------------------------------


class FirstDesign:
    """The breaker of seed 004, as it stands there, but for the clock, which is an argument."""

    def __init__(self) -> None:
        self.state = "closed"
        self.failures = self.successes = self.total = 0
        self.last_failure = 0.0

    def call(self, ok: bool, now: float) -> bool:
        if self.state == "open":
            if now - self.last_failure <= 30:
                return False
            self.state = "half_open"
        self.total += 1
        if ok:
            self.successes += 1
            if self.state == "half_open" and self.successes / self.total > 0.8:
                self.state = "closed"
                self.failures = self.successes = self.total = 0
            return True
        self.failures += 1
        self.last_failure = now
        if self.state == "half_open" or (self.total >= 10 and self.failures / self.total > 0.5):
            self.state = "open"
        return True


def calls_until(first: FirstDesign | Switch, state: str, ok: bool, most: int = 5000) -> int | None:
    """How many calls with one result it takes."""
    for n in range(1, most):
        at = 1000.0 + n
        if isinstance(first, FirstDesign):
            first.call(ok, at)
        else:
            taken = first.take(later(at))
            first = first if taken is None else taken.after(GOOD if ok else BAD, later(at))
        if first.state == state:
            return n
    return None


@pytest.mark.covers("V58", "X27", "X29")
def test_it_closes_and_opens_where_the_first_design_does_not() -> None:
    """RELIABILITY.md, section 6, item 12: counters over the whole past, unlimited trials."""
    seed, ours = FirstDesign(), Switch()
    for n in range(1000):  # half and half, then one more failure opens it
        seed.call(n % 2 == 0, 0)
        ours = ours.after(GOOD if n % 2 == 0 else BAD, NOW)
    seed.call(False, 0)
    ours = ours.after(BAD, NOW)
    assert (seed.state, ours.state) == ("open", "open")
    assert calls_until(seed, "closed", ok=True) == 1505
    assert calls_until(ours, "closed", ok=True) == 3

    seed, ours = FirstDesign(), Switch()
    for _ in range(10_000):
        seed.call(True, 0)
    ours = ours.after(GOOD * 10_000, NOW)
    assert calls_until(seed, "open", ok=False) is None
    assert calls_until(ours, "open", ok=False) == 11

    seed, let_through = FirstDesign(), 0
    seed.state = "half_open"
    seed.total = seed.failures = 10
    for _ in range(40):  # all of them begun before one has ended, were this not a model
        let_through += seed.call(True, 40)
    assert let_through == 40


# --- Against a model --------------------------------------------------------------------------------------------------


@dataclass
class Model:
    """The same breaker as somebody would write it who never needs to store or share it."""

    now: float = 0.0
    state: str = "closed"
    era: int = 0
    results: deque[bool] = field(default_factory=lambda: deque(maxlen=20))
    wake: float = 0.0
    left: int = 0
    passed: int = 0
    forced: bool = False

    def go(self, state: str, wake: float = 0.0, forced: bool = False) -> None:
        self.state, self.wake, self.forced = state, wake, forced
        self.era += 1
        self.left, self.passed = 0, 0
        if state != "open":
            self.results.clear()

    def begin(self) -> bool:
        if self.state == "closed":
            return True
        ready = not self.forced and self.now >= self.wake
        if self.state == "open":
            if not ready:
                return False
            self.go("half_open")
            self.left = 3
        if self.left:
            self.left -= 1
        elif not ready:
            return False
        self.wake = self.now + 30
        return True

    def end(self, result: str, era: int) -> None:
        if self.state == "open":
            if result == BAD and era >= self.era - 1 and not self.forced:
                self.wake = max(self.wake, self.now + 30)
        elif era != self.era:
            pass
        elif self.state == "half_open":
            if result == BAD:
                self.go("open", self.now + 30)
            elif result == VOID:
                self.left = min(3, self.left + 1)
            else:
                self.passed += 1
                if self.passed / 3 > 0.8:
                    self.go("closed")
        elif result != VOID:
            self.results.append(result == BAD)
            enough = len(self.results) >= 10 and sum(self.results) > len(self.results) * 0.5
            if result == BAD and enough and not self.forced:
                self.go("open", self.now + 30)

    def wait(self, seconds: float, era: int) -> None:
        if self.forced or era < self.era - 1:
            return
        wake = self.now + min(seconds, 3600)
        if self.state == "open":
            self.wake = max(self.wake, wake)
        elif era == self.era:
            self.go("open", max(wake, self.now + 30) if self.state == "half_open" else wake)


def follow(seed: int, steps: int) -> dict[str, int]:
    """Random calls, delays, late results and orders: the value and the model say the same after each step."""
    dice = random.Random(seed)
    switch, model = Switch(), Model()
    under_way: list[int] = []
    visits = {state.value: 0 for state in State}
    health = 0.1
    for step in range(steps):
        now = later(model.now)
        roll = dice.random()
        if roll < 0.45:
            taken = switch.take(now)
            assert (taken is not None) == model.begin(), f"seed {seed}, step {step}"
            if taken is not None:
                switch = taken
                under_way.append(switch.era)
        elif roll < 0.9 and under_way:
            era = under_way.pop(dice.randrange(len(under_way)))
            result = BAD if dice.random() < health else GOOD if dice.random() < 0.95 else VOID
            switch = switch.after(result, now, era)
            model.end(result, era)
        elif roll < 0.97:
            model.now += round(dice.choice([0.01, 0.5, 5, 29.5, 31]), 2)
        elif roll < 0.98:
            health = dice.choice([0.05, 0.3, 0.6, 0.95])
        elif roll < 0.985 and under_way:
            era = under_way.pop()
            seconds = dice.choice([1.0, 60.0, 9999.0])
            switch = switch.asked_to_wait(seconds, now, era)
            model.wait(seconds, era)
        elif roll < 0.987 and under_way:
            under_way.pop()  # its process died
        elif roll > 0.999:
            order = dice.choice(["trip", "close", "reset", "reset"])
            if order == "trip":
                switch = switch.trip(now)
                model.go("open", forced=True)
            elif order == "close":
                switch = switch.force_closed()
                model.go("closed", forced=True)
            else:
                switch = switch.reset()
                model.go("closed")
        if switch.forced and dice.random() < 0.02:
            switch = switch.reset()
            model.go("closed")
        compare(switch, model, f"seed {seed}, step {step}")
        visits[switch.state.value] += 1
    return visits


def compare(switch: Switch, model: Model, where: str) -> None:
    assert (switch.state.value, switch.era, switch.forced) == (model.state, model.era, model.forced), where
    if switch.state is not OPEN:
        assert switch.calls == "".join(BAD if each else GOOD for each in model.results), where
    if switch.state is not CLOSED and not switch.forced:
        assert switch.until == later(model.wake), where
    assert (switch.trials_left, switch.successes) == (model.left, model.passed), where
    assert switch.allows(later(model.now)) == replace_begin(model), where


def replace_begin(model: Model) -> bool:
    return replace(model, results=deque(model.results, maxlen=20)).begin()


@pytest.mark.covers("V51", "V53", "V54", "V56", "V57", "V58", "V59", "X27", "X28", "X29")
def test_a_hundred_thousand_random_steps_against_a_model() -> None:
    visits: dict[str, int] = {}
    for seed in range(5):
        for state, count in follow(seed, 20_000).items():
            visits[state] = visits.get(state, 0) + count
    assert min(visits.values()) > 5_000, visits  # every state was really there


@given(st.text(alphabet=GOOD + BAD + VOID, max_size=60), st.integers(0, 60))
def test_calls_may_be_handed_in_as_batches(calls: str, cut: int) -> None:
    """The window is the same; a batch is judged as a whole, if something in it failed."""
    forced = Switch(forced=True)
    whole = forced.after(calls, NOW)
    assert forced.after(calls[:cut], NOW).after(calls[cut:], NOW) == whole
    one_by_one = forced
    for call in calls:
        one_by_one = one_by_one.after(call, NOW)
    assert one_by_one == whole
    seen = calls.replace(VOID, "")[-20:]
    opens = len(seen) >= 10 and seen.count(BAD) / len(seen) > 0.5
    assert (Switch().after(calls, NOW).state is OPEN) is opens


@given(st.text(alphabet=GOOD + BAD, max_size=100))
def test_whatever_happened_a_dependency_that_is_well_again_is_let_through_again(calls: str) -> None:
    switch = Switch().after(calls, NOW)
    for n in range(3):
        taken = switch.take(later(1000 + n))
        assert taken is not None
        switch = taken.after(GOOD, later(1000 + n))
    assert switch.state is CLOSED
