"""Cron expressions: five fields, or six with the seconds first, as sets of numbers.

    minute  hour  day of month  month  day of week          30 2 * * MON-FRI
    second  minute  hour  day of month  month  day of week  0 30 2 * * MON-FRI

Numbers, names (JAN, MON), ranges (1-5), steps (*/15, 10-50/20, 5/15), lists (1,15). Day of month also L (the last
day), L-3 (three days before), LW (the last Monday to Friday), 15W (the Monday to Friday nearest to the 15th); day of
week also TUE#2 (the second Tuesday), FRI#L or FRIL (the last Friday); ? in a field of days is *. Sunday is 0 or 7.
@hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually.

As in every cron, a day must be in both fields of days if one of them begins with *; otherwise one of them is enough.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import InvalidSettings
from .days import ALL_WEEK, Days, LocalTimes

MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEK = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


@dataclass(frozen=True, slots=True)
class Kind:
    """What a field counts, its range, and the names of its numbers."""

    what: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    example: str = "1,15 or 1-5 or */2"


SECOND = Kind("second", 0, 59)
MINUTE = Kind("minute", 0, 59)
HOUR = Kind("hour", 0, 23)
MONTH_DAY = Kind("day of month", 1, 31, (), "1,15 or 1-5 or L or LW or 15W")
MONTH = Kind("month", 1, 12, MONTHS, "3 or MAR or 1-6")
WEEK_DAY = Kind("day of week", 0, 7, WEEK, "MON-FRI or 0 or TUE#2 or FRIL")
KINDS = (SECOND, MINUTE, HOUR, MONTH_DAY, MONTH, WEEK_DAY)


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed expression. `text` is its canonical form, always the same for the same rule.

    `elapsed`: its time of day has a *, so it counts elapsed time instead of local time.
    """

    text: str
    days: Days
    hours: tuple[int, ...]
    minutes: tuple[int, ...]
    seconds: tuple[int, ...]
    elapsed: bool


@dataclass(frozen=True, slots=True)
class Word:
    """A field, or a part of one, and where it begins in the whole text."""

    text: str
    at: int
    whole: str
    rule: str = "cron rule"

    def split(self, sign: str) -> list[Word]:
        words, at = [], self.at
        for each in self.text.split(sign):
            words.append(Word(each, at, self.whole, self.rule))
            at += len(each) + len(sign)
        return words

    def refused(self, kind: Kind, why: str) -> InvalidSettings:
        return InvalidSettings(
            f"{self.rule} {self.whole!r} is refused: the {kind.what} at character {self.at + 1}, {self.text!r}, {why}. "
            f"Write for example {kind.example}."
        )


@dataclass(frozen=True, slots=True)
class Field:
    """The numbers of a field; `star`: it has a * in it; `special`: parts with letters, in their canonical form."""

    values: tuple[int, ...]
    star: bool
    text: str
    special: tuple[str, ...] = ()


def parse(text: object) -> Cron:
    """Refuses what is no cron rule, and says at which character."""
    if not isinstance(text, str):
        raise InvalidSettings(f"A cron rule must be text and is {text!r}: write cron('0 9 * * MON-FRI').")
    words = _words(text)
    kinds = KINDS[-len(words) :]
    numbers = [_numbers(word, kind) for word, kind in zip(words, kinds, strict=True)]
    second = numbers[0] if len(numbers) == 6 else Field((0,), False, "0")
    minute, hour, month_day, month, week_day = numbers[-5:]
    cron = Cron(
        " ".join(each.text for each in (numbers if second.text != "0" else numbers[-5:])),
        _days(month_day, month, week_day),
        hour.values,
        minute.values,
        second.values,
        second.star or minute.star or hour.star,
    )
    if LocalTimes(cron.days, (0,), (0,)).ceil(0) is None:
        raise InvalidSettings(
            f"cron rule {text!r} is refused: no year has such a day "
            f"(day of month {month_day.text}, month {month.text}). Correct one of the two."
        )
    return cron


def _words(text: str) -> list[Word]:
    whole = text.strip()
    if whole.startswith("@"):
        if whole.lower() not in MACROS:
            instead = "every(minutes=5)" if whole.lower().startswith("@every") else ", ".join(sorted(MACROS))
            raise InvalidSettings(f"cron rule {text!r} is refused: there is no {whole!r}. Use {instead}.")
        whole = text = MACROS[whole.lower()]
    words = [Word(each[0], each.start(), text) for each in re.finditer(r"\S+", text)]
    if len(words) not in (5, 6):
        raise InvalidSettings(
            f"cron rule {text!r} is refused: it has {len(words)} fields and needs 5 (minute, hour, day of month, "
            "month, day of week) or 6 (second first). Write for example 0 9 * * MON-FRI."
        )
    return words


# --- One field ------------------------------------------------------------------------------------------------


def _numbers(word: Word, kind: Kind) -> Field:
    values: set[int] = set()
    steps: set[int] = set()
    special: set[str] = set()
    for part in word.split(","):
        if (found := _special(part, kind)) is not None:
            special.add(found)
        elif part.text[:1] in ("*", "?"):
            steps.add(_star(part, kind))
        else:
            values.update(_range(part, kind))
    return _field(kind, values, steps, special)


def _field(kind: Kind, values: set[int], steps: set[int], special: set[str]) -> Field:
    if kind is WEEK_DAY:
        values = {each % 7 for each in values}
    high = 6 if kind is WEEK_DAY else kind.high
    every = {each for step in steps for each in range(kind.low, high + 1, step)}
    stars = ["*"] if 1 in steps else [f"*/{step}" for step in sorted(steps)]
    named = _compressed(sorted(values - every))
    text = ",".join([*stars, *named, *sorted(special)])
    return Field(tuple(sorted(values | every)), bool(steps), text, tuple(sorted(special)))


def _star(part: Word, kind: Kind) -> int:
    """The step of * or */15."""
    star, slash, step = part.text.partition("/")
    if star not in ("*", "?") or (star == "?" and kind not in (MONTH_DAY, WEEK_DAY)):
        raise part.refused(kind, "is not understood")
    return _step(step, part, kind) if slash else 1


def _step(text: str, part: Word, kind: Kind) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or not 1 <= int(text) <= kind.high:
        raise part.refused(kind, f"has a step that is not a number from 1 to {kind.high}")
    return int(text)


def _range(part: Word, kind: Kind) -> range:
    span, slash, step = part.text.partition("/")
    first, dash, last = span.partition("-")
    low = _number(first, part, kind)
    high = _number(last, part, kind) if dash else kind.high if slash else low
    if kind is WEEK_DAY:
        if dash and high == 0 and low > 0:
            high = 7  # SAT-SUN
        if slash and not dash:
            high = 6
    if high < low:
        raise part.refused(kind, f"ends before it begins: write {first}-{kind.high},{kind.low}-{last}")
    return range(low, high + 1, _step(step, part, kind) if slash else 1)


def _number(text: str, part: Word, kind: Kind) -> int:
    if text.upper() in kind.names:
        return kind.names.index(text.upper()) + (1 if kind is MONTH else 0)
    if not re.fullmatch(r"[0-9]{1,9}", text):
        names = (
            f"neither a number nor a name ({kind.names[0]} to {kind.names[-1]})"
            if kind.names
            else "no number"
        )
        raise part.refused(kind, f"is {names}")
    if not kind.low <= int(text) <= kind.high:
        raise part.refused(kind, f"is not from {kind.low} to {kind.high}")
    return int(text)


def _compressed(values: list[int]) -> list[str]:
    """1, 2, 3, 7 -> 1-3, 7."""
    parts: list[str] = []
    while values:
        end = 1
        while end < len(values) and values[end] == values[0] + end:
            end += 1
        run, values = values[:end], values[end:]
        parts += [f"{run[0]}-{run[-1]}"] if len(run) > 2 else [str(each) for each in run]
    return parts


# --- Days -----------------------------------------------------------------------------------------------------

BACK = re.compile(r"L(?:-([0-9]{1,2}))?")
NEAREST = re.compile(r"([0-9]{1,2})W")
NTH = re.compile(r"(.+)#([0-9]{1,9}|L)|(.+)(?<!#)L")


def _special(part: Word, kind: Kind) -> str | None:
    """L, L-3, LW, 15W, TUE#2, FRIL in their canonical form; None: it is none of these."""
    text = part.text.upper()
    if kind is MONTH_DAY:
        if text in ("LW", "WL"):
            return "LW"
        if found := BACK.fullmatch(text):
            if not found[1] or int(found[1]) <= 30:
                return f"L-{int(found[1])}" if found[1] and int(found[1]) else "L"
            raise part.refused(kind, "goes back by more than 30 days")
        if found := NEAREST.fullmatch(text):
            return f"{_number(found[1], part, kind)}W"
    elif kind is WEEK_DAY and (found := NTH.fullmatch(text)):
        weekday = _number(found[1] or found[3], part, kind) % 7
        if (number := found[2] or "L") == "L":
            return f"{weekday}#L"
        if not 1 <= int(number) <= 5:
            raise part.refused(kind, "must have a number from 1 to 5, or L, behind the #")
        return f"{weekday}#{int(number)}"
    return None


def _days(month_day: Field, month: Field, week_day: Field) -> Days:
    nth = []
    for each in week_day.special:
        day, _, number = each.partition("#")
        nth.append(((int(day) + 6) % 7, 0 if number == "L" else int(number)))
    return Days(
        months=_bits(month.values),
        month_days=_bits(month_day.values),
        from_last=tuple(-int(each[1:] or 0) for each in month_day.special if each[0] == "L" and each != "LW"),
        last_weekday="LW" in month_day.special,
        nearest=tuple(int(each[:-1]) for each in month_day.special if each[0] != "L"),
        week_days=_bits(tuple((each + 6) % 7 for each in week_day.values)) & ALL_WEEK,
        nth=tuple(nth),
        both=month_day.star or week_day.star,
    )


def month_days(text: str, rule: str) -> Field:
    """The field of days alone, for monthly rules: `31`, `L`, `15W`. `rule` is what errors say."""
    return _numbers(Word(text, 0, text, rule), MONTH_DAY)


def week_days(text: str, rule: str) -> Field:
    """The field of weekdays alone, for weekly and monthly rules: `MON,THU`, `TUE#2`."""
    return _numbers(Word(text, 0, text, rule), WEEK_DAY)


def _bits(values: tuple[int, ...]) -> int:
    return sum(1 << each for each in values)
