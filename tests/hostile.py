"""Bodies, texts, names and addresses that break other systems, each with what must become of it.

Lists of (name, value, accepted). An accepted value comes back exactly as it went, on every database; any other is
refused before anything is stored. BODIES are for `encode`, RAW for `encode_raw`, the others for names.py.
"""

# ruff: noqa: E501 - tables

from __future__ import annotations

import math
import sys
from collections import deque
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from typing import Any

from holdfast.settings import Settings

LIMITS = Settings()

Case = tuple[str, Any, bool]


def cases(group: str, accepted: bool, values: dict[str, Any]) -> list[Case]:
    return [(f"{group}: {name}", value, accepted) for name, value in values.items()]


def numbered(group: str, accepted: bool, values: list[Any]) -> list[Case]:
    def name(value: Any) -> str:
        return type(value).__name__ if type(value) is object else ascii(value)[:40]

    return [(f"{group}: {name(value)}", value, accepted) for value in values]


# --- Text that has hurt somebody ------------------------------------------------------------------------------

TEXTS: dict[str, str] = {
    "empty": "",
    "space": " ",
    "white space": " \t\r\n\x0b\x0c\x85\xa0\u2003\u3000",
    "controls": "".join(map(chr, range(1, 32))),
    "delete and C1": "\x7f" + "".join(map(chr, range(0x80, 0xA0))),
    "quotes": "'\"`´‘’“”",
    "backslashes": "\\ \\\\ \\n \\u0041 \\x41",
    "an escape that is none": "\\u0000",
    "an escaped escape": "\\\\u0000",
    "slashes": "/ // </script> <!-- ]]>",
    "SQL": "'; drop table holdfast_message; --",
    "parameters": ":name %s %(name)s $1 ? {} {0} ${x} {{x}} %%",
    "shell": "$(touch /tmp/x) `id` | ; && > <",
    "JSON in text": '{"a": [1, null, "\\u0000"]}',
    "looks like null": "null",
    "looks like NaN": "NaN",
    "looks like a number": "1e400",
    "looks like a date": "2026-02-30T25:61:00Z",
    "looks like a UUID": "00000000-0000-0000-0000-000000000000",
    "base64": "AP8=",
    "latin": "Ünïcödé ÆØÅ ß",
    "CJK": "田中さんにあげて下さい 社會科學院 사회과학원",
    "CJK beyond the plane": "𠜎𠜱𠝹𠱓",
    "arabic": "مُنَاقَشَةُ سُبُلِ اِسْتِخْدَامِ اللُّغَةِ",
    "hebrew": "הָיְתָה test",
    "RTL override": "\u202etest\u202c",
    "isolates": "\u2066test\u2067\u2069",
    "LRM and RLM": "\u200e\u200f\u061c",
    "combining": "Z̮̞̠͙͔ͅḀ̗̞͈̻̗Ḷ͙͎̯̹̞͓G̻O̭̗̮",
    "decomposed": "e\u0301 is not é",
    "a thousand marks": "a" + "\u0301" * 1000,
    "hangul jamo": "\u1112\u1161\u11ab",
    "turkish i": "İıiI",
    "sharp s": "ßẞſ",
    "ligatures": "ﬁ ﬃ ﷽",
    "emoji": "😀👍🏽",
    "emoji family": "👨‍👩‍👧‍👦",
    "flags": "🇨🇭🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "keycap": "1️⃣",
    "zero width": "a\u200bb\u200cc\u200dd\u2060e",
    "BOM": "\ufeffbom",
    "soft hyphen": "\u00ad",
    "interlinear": "\ufff9\ufffa\ufffb\ufffc",
    "replacement": "\ufffd",
    "noncharacters": "\ufffe\uffff\ufdd0\U0001ffff\U0010ffff",
    "line separators": "\u2028\u2029",
    "private use": "\ue000\uf8ff\U000f0000\U0010fffd",
    "unassigned": "\u0378\U000e0080",
    "tags": "\U000e0001\U000e0041",
    "variation selectors": "\ufe0f\U000e0100",
    "mathematical": "𝕿𝖍𝖊 𝚚𝚞𝚒𝚌𝚔",
    "full width": "ｆｕｌｌ",
    "numbers of others": "١٢٣ ༠ Ⅷ ½",
    "cyrillic lookalike": "раураl",
    "long": "x" * 100_000,
    "long and wide": "😀" * 20_000,
    "every latin-1": "".join(map(chr, range(1, 256))),
    "the whole of a plane's edges": "".join(map(chr, (0xD7FF, 0xE000, 0xFFFD, 0x10000, 0x10FFFF))),
}

BROKEN_TEXTS: dict[str, str] = {
    "NUL": "\0",
    "NUL inside": "a\0b",
    "NUL at the end": "abc\0",
    "NUL beside an escape of it": "\\u0000 \0",
    "high surrogate": "\ud800",
    "low surrogate": "\udfff",
    "surrogate inside": "a\ud83db",
    "a pair written as two": "\ud83d\ude00",
    "reversed pair": "\ude00\ud83d",
    "surrogateescape": "\udcff",
}


# --- Bodies -----------------------------------------------------------------------------------------------------


def nested(levels: int, kind: str = "list") -> Any:
    value: Any = 1
    for level in range(levels):
        value = {"a": value} if kind == "dict" or (kind == "both" and level % 2) else [value]
    return value


def cyclic_list() -> Any:
    value: list[Any] = [1]
    value.append(value)
    return value


def cyclic_dict() -> Any:
    value: dict[str, Any] = {}
    value["a"] = [{"b": value}]
    return value


def shared() -> Any:
    """The same thing twice is no cycle."""
    part = {"a": [1]}
    return [part, part, {"x": part}]


class HalfZone(tzinfo):
    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        return timedelta(minutes=34, seconds=8) if moment else None

    def dst(self, moment: datetime | None) -> timedelta | None:
        return None


class Anything:
    """No way into JSON."""


INTEGERS = [
    0, 1, -1, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, 2**63,
    -(2**63), -(2**63) - 1, 2**64 - 1, 2**64, 2**64 + 1, -(2**64), 2**128, 2**200, -(2**200), 10**22, 10**23, 10**308,
    10**309, 10**400, 10**639, 10**4299, -(10**4298),
]  # fmt: skip

FLOATS = [
    0.0, -0.0, 0.1, 0.2, 0.1 + 0.2, 1.0, -1.5, 1 / 3, 1e22, 1e23, 1e16, 1e15, 1e17, 123456789012345680.0, 5e-324, -5e-324,
    2.2250738585072014e-308, 2.225073858507201e-308, sys.float_info.max, -sys.float_info.max, sys.float_info.epsilon,
    1.7976931348623157e308, 9007199254740993.0, 4.35, 0.3, 2.5, 1e-7, 1e-5, 1e21, 3.141592653589793, 1e100, 1e-100,
]  # fmt: skip

BODIES: list[Case] = [
    *cases("scalar", True, {"null": None, "true": True, "false": False, "text": "x", "number": 1}),
    *cases("empty", True, {"dict": {}, "list": [], "nested": [[], {}, [[]], {"": {}}], "key": {"": ""}}),
    *numbered("integer", True, [{"n": value} for value in INTEGERS]),
    *cases(
        "integer", False, {"4301 digits": 10**4300, "negative": -(10**4300), "in a list": [1, [10**5000]]}
    ),
    *numbered("float", True, [[value] for value in FLOATS]),
    *cases(
        "float",
        False,
        {
            "NaN": math.nan,
            "infinity": math.inf,
            "minus infinity": -math.inf,
            "overflow": float("1e400"),
            "NaN in a list": [1.0, math.nan],
            "NaN in a dict": {"a": {"b": math.nan}},
            "NaN beside null": {"a": None, "b": math.nan},
            "infinity far inside": [[[[{"a": [0.0, {"b": (1, -math.inf)}]}]]]],
            "NaN among many": {"rows": [{"v": float(n)} for n in range(500)] + [{"v": math.nan}]},
        },
    ),
    *cases("text", True, {name: {"text": value} for name, value in TEXTS.items()}),
    *cases("key", True, {name: {value: 1, "x": 2} for name, value in TEXTS.items()}),
    *cases("text alone", True, dict(list(TEXTS.items())[:12])),
    *cases("text", False, {name: {"items": [{"text": value}]} for name, value in BROKEN_TEXTS.items()}),
    *cases("key", False, {name: [{value: 1}] for name, value in BROKEN_TEXTS.items()}),
    *cases("text alone", False, BROKEN_TEXTS),
    *[
        (f"depth: {kind} {levels}", nested(levels, kind), levels <= LIMITS.body_depth)
        for kind in ("list", "dict", "both")
        for levels in (1, 2, 32, 63, 64, 65, 66, 100, 500, 1000, 5000)
    ],
    *cases("cycle", False, {"list": cyclic_list(), "dict": cyclic_dict()}),
    ("cycle: none, only shared", shared(), True),
    *[
        (f"size: {name} {extra:+}", value(LIMITS.body_bytes + extra), extra <= 0)
        for extra in (-1, 0, 1, 1000)
        for name, value in {
            "text": lambda size: "a" * (size - 2),
            "two bytes each": lambda size: "é" * ((size - 2) // 2) + "a" * (size % 2),
            "in a dict": lambda size: {"a": "b" * (size - 8)},
            "in a list": lambda size: ["a" * (size - 4)],
            "escaped": lambda size: "\n" * ((size - 2) // 2) + "a" * (size % 2),
        }.items()
    ],
    *cases("wide", True, {"list": list(range(10_000)), "dict": {f"k{n}": n for n in range(10_000)}}),
    *cases(
        "key of another type",
        False,
        {
            "int": {1: 2},
            "int beside its text": {1: 1, "1": 2},
            "float": {1.5: 2},
            "NaN": {math.nan: 2},
            "true": {True: 1},
            "null": {None: 1},
            "tuple": {(1, 2): 3},
            "bytes": {b"x": 1},
            "date": {date(2026, 1, 1): 1},
            "inside": {"a": [{"b": {1: 2}}]},
        },
    ),
    *cases(
        "type",
        False,
        {
            "bytes": b"x",
            "bytes inside": {"a": [b"\xff"]},
            "bytearray": bytearray(b"x"),
            "memoryview": memoryview(b"x"),
            "set": {1, 2},
            "frozenset inside": {"a": frozenset([1])},
            "complex": 1j,
            "object": Anything(),
            "object inside": {"a": [Anything()]},
            "class": Anything,
            "function": nested,
            "generator": (n for n in ()),
            "range": range(3),
            "deque": deque([1]),
            "fraction": Fraction(1, 3),
            "exception": ValueError("x"),
            "module": math,
            "ellipsis": ...,
            "slice": slice(1),
            "dict view": {"a": 1}.keys(),
            "Decimal NaN": Decimal("NaN"),
            "Decimal signalling NaN": {"a": Decimal("sNaN")},
            "Decimal infinity": [Decimal("-Infinity")],
            "zone of half minutes": datetime(2026, 1, 1, tzinfo=HalfZone()),
            "offset of seconds": datetime(2026, 1, 1, tzinfo=timezone(timedelta(seconds=1))),
            "time in a zone without offset": {"a": time(1, tzinfo=HalfZone())},
        },
    ),
]

# Written as text or as a list; a handler's annotation brings them back: (name, value, annotation).
CONVERTED: list[tuple[str, Any, Any]] = [
    ("aware datetime", datetime(2026, 7, 1, 12, 0, 0, 123456, UTC), datetime),
    (
        "datetime with offset",
        datetime(2026, 7, 1, tzinfo=timezone(timedelta(hours=-9, minutes=-30))),
        datetime,
    ),
    ("naive datetime", datetime(2026, 7, 1), datetime),
    ("first datetime", datetime.min, datetime),
    ("last datetime", datetime.max, datetime),
    ("date", date(2024, 2, 29), date),
    ("time", time(23, 59, 59, 999999), time),
    ("timedelta", timedelta(days=-1, microseconds=1), timedelta),
    ("decimal", Decimal("1.10"), Decimal),
    ("huge decimal", Decimal("1E+400"), Decimal),
    ("tiny decimal", Decimal("-1E-400"), Decimal),
    ("tuple", (1, "a"), tuple[int, str]),
    ("list of tuples", [(1, 2), (3, 4)], list[tuple[int, int]]),
]


# --- JSON text that somebody else wrote -----------------------------------------------------------------------------

RAW: list[Case] = [
    *numbered(
        "good",
        True,
        [
            "null", "true", "false", "0", "-0", "1", "-1", "1.5", "1e2", "1E+2", "1e-2", "0e1", "0.0", "-0.0", "1e-400", "1e22",
            '""', '"a"', "[]", "{}", " [] ", "\t\r\n{ }\n", "[1,2]", "[ 1 , 2 ]", '{"a":1}', '{ "a" : 1 , "b" : 2 }', '{"":0}',
            '"\\u0041"', '"\\ud83d\\ude00"', '"\\"\\\\\\/\\b\\f\\n\\r\\t"', '"\\\\u0000"', '"é😀"', '"\x7f"', '"\u2028"',
            '"\uffff"', '"\\uFFFF"', '"\ue000"', '"\\u007f"', '{"a":{"a":{"a":1}}}', '[{"a":1},{"a":1}]', '{"a:b":"c:d"}',
            '{"a\\"b":1}', '{"\\u0061":1,"b":2}', '"{\\"a\\":1,\\"a\\":2}"', "123456789012345678901234567890",
            "-123456789012345678901234567890", "9007199254740993", "9007199254740993.0", "0." + "1" * 300, "1" * 4300, "1e308",
            "[" * 64 + "]" * 64, '{"a":' * 64 + "1" + "}" * 64, '"' + "a" * 1000 + '"', '[null,1,"1",{}]', '["\\u00e9","é"]',
            '{"é":1,"e\u0301":2}', '{"a":[],"b":{}}', "[0,0.0,-0]", '{"A":1,"a":2}', '[[[[[]]]]]', '"\\u2028"', '" \\u0020 "',
        ],
    ),
    *numbered(
        "bad",
        False,
        [
            "", " ", "\n", "nul", "nulll", "True", "None", "undefined", "NaN", "-NaN", "Infinity", "-Infinity", "+Infinity", "inf",
            "1e400", "-1e400", "[1e999]", '{"a":1.8e308}', "01", "-01", "+1", "--1", "1.", ".5", "-.5", "1e", "1e+", "1.e1", "0x10",
            "0b1", "1_000", "1,5", "1 2", "- 1", "-", "１", "1" * 4301, "[", "]", "{", "}", "[1,]", "[,1]", "[1,,2]", "[1 2]", "[1",
            "[1}", "{1:2}", "{a:1}", "{'a':1}", '{"a"}', '{"a":}', '{"a" 1}', '{"a":1,}', '{,"a":1}', '{"a":1 "b":2}', '{"a":1',
            '{"a"::1}', '{"a":1}}', "[]]", "[][]", "{}{}", '"a" "b"', "'a'", '"', '"a', 'a"', '"\\"', '"\\x41"', '"\\u"', '"\\u12"',
            '"\\u12G4"', '"\\U0041"', '"\\a"', '"\\0"', '"\\\'"', '"\n"', '"\t"', '"\x00"', '"\x1f"', "\x00", "[]\x00", "\x00[]",
            "\ufeff[]", "\xa0[]", "\u2003[]", "\x0c[]", "\x0b1", "// a\n1", "/* a */1", "1 // a", "#1", "[1] # a", "<a/>", "a: 1",
            '"\\u0000"', '["a\\u0000b"]', '{"\\u0000":1}', '{"a":"\\\\\\u0000"}', '"\\ud800"', '"\\udc00"', '"\\ud800a"',
            '"\\ud800\\u0041"', '"\\ud800\\ud800"', '"\\ude00\\ud83d"', '{"\\ud800":1}', "\"\ud800\"", "\udcff",
            '{"a":1,"a":1}', '{"a":1,"a":2}', '{"a":{"b":1,"c":2,"b":3}}', '[{"a":1,"\\u0061":2}]', '{"":1,"":2}',
            "[" * 65 + "]" * 65, '{"a":' * 65 + "1" + "}" * 65, "[" * 1000 + "]" * 1000, "[" * 100_000 + "]" * 100_000,
            "[" * 100_000, '{"a":' * 100_000, '"' + "a" * LIMITS.body_bytes + '"', " " * LIMITS.body_bytes + "1",
        ],
    ),
    *cases(
        "bytes",
        True,
        {"ascii": b'{"a":1}', "UTF-8": '"é😀"'.encode(), "spaces": b" 1 "},
    ),
    *cases(
        "bytes",
        False,
        {
            "no UTF-8": b'"\xff"',
            "overlong": b'"\xc0\x80"',
            "surrogate": b'"\xed\xa0\x80"',
            "beyond Unicode": b'"\xf4\x90\x80\x80"',
            "cut": b'"\xf0\x9f\x98"',
            "latin-1": '"é"'.encode("latin-1"),
            "UTF-16": '"a"'.encode("utf-16"),
            "UTF-32": '"a"'.encode("utf-32"),
            "BOM": b"\xef\xbb\xbf{}",
            "pickle": b"\x80\x04K\x01.",
            "gzip": b"\x1f\x8b\x08\x00",
            "NUL": b"\x00",
        },
    ),
]  # fmt: skip


# --- Names ----------------------------------------------------------------------------------------------------------

# What a name may be, beyond length: the same for types, streams, dedupe keys and subjects.
GOOD_NAMES: list[str] = [
    "a", "order.placed", "Order.Placed", "order_placed", "order-placed", "order/placed", "order:placed", "order placed",
    "urn:example:order", "com.example.order.v1", "1", "0", "-1", "null", "None", "true", "[]", "{}", "'", '"', "''", "\\", "`",
    "'; drop table holdfast_message; --", "%s", "%", "100%", "_", "a_b", "?", "$1", ":name", "{0}", "a@b", "a#b", "a&b=c",
    "<script>alert(1)</script>", "../../etc/passwd", "a,b", "a;b", "a|b", "~", "é", "e\u0301", "ß", "İ", "田中", "사회", "مرحبا",
    "שלום", "Привет", "नमस्ते", "😀", "👨‍👩‍👧‍👦", "می‌خواهم", "\ue000", "\u0378", "\uffff", "\U0010ffff", "a\u200bb", "a\u00adb", "a  b", "a\xa0b",
    "x" * 199, "x" * 200, "é" * 200, "😀" * 200,
]  # fmt: skip

BAD_NAMES: list[Any] = [
    "", " ", "  ", "\t", "\n", " a", "a ", "\ta", "a\n", "\xa0a", "a\u3000", "a\u2003", "a\x85", "a\r\nb", "a\nb", "a\tb", "\0", "a\0",
    "\0a", "a\0b", "\x01", "a\x1b[31mb", "a\x7fb", "a\x80b", "a\x9fb", "\ud800", "a\udfffb", "\ud83d\ude00", "a\u2028b", "a\u2029b",
    "\u202eabc", "a\u202ab", "a\u2066b\u2069", "\ufeffa", "a\ufeff", "a\x0bb", "a\x0cb", "a\x08b",
    None, 1, 1.5, True, b"a", ["a"], {"a": 1}, object(),
]  # fmt: skip

TYPES: list[Case] = [
    *numbered("type", True, GOOD_NAMES),
    *numbered("type", False, BAD_NAMES),
    *numbered(
        "type", False, ["*", "order.*", "*.placed", "a*b", "x" * 201, "é" * 201, "😀" * 201, "x" * 100_000]
    ),
]

STREAMS: list[Case] = [
    *numbered("stream", True, GOOD_NAMES),
    *numbered(
        "stream", True, ["*", "order.*", "order-1", "holdfast/x", "x" * 299, "x" * 300, "é" * 300, "😀" * 300]
    ),
    *numbered("stream", False, BAD_NAMES),
    *numbered("stream", False, ["x" * 301, "é" * 301, "😀" * 301, "x" * 100_000]),
]

HEADER_NAMES: list[Case] = [
    *numbered(
        "header",
        True,
        ["a", "A", "traceparent", "X-Request-Id", "x_y", "a.b", "ce-id", "1", "!#$%&'*+.^_`|~-", "x" * 128],
    ),
    *numbered("header", False, BAD_NAMES),
    *numbered(
        "header",
        False,
        ["a b", "a:b", "a,b", "a;b", "é", "a/b", "(a)", "a@b", '"a"', "a\\b", "[a]", "😀", "x" * 129],
    ),
]

# PostgreSQL schemas, which become part of SQL.
IDENTIFIERS: list[Case] = [
    *numbered(
        "schema",
        True,
        [
            "holdfast", "a", "_", "_a", "a1", "a_b", "messages", "my_schema_2", "public", "x" * 48, "_" * 48, "a" + "1" * 47,
            "selected", "users", "orders", "tables", "pgx", "p", "holdfast_test", "information",
        ],
    ),
    *numbered(
        "schema",
        False,
        [
            "", " ", "a ", " a", "A", "Holdfast", "aB", "1", "1a", "a-b", "a.b", "a b", "a\tb", "a\nb", "a\n", "\na", "a;", "a;b", "a'b",
            "a''b", 'a"b', '"a"', "'a'", "`a`", "[a]", "a\\b", "a/b", "a*", "a%", "a%s", "%(a)s", ":a", "$1", "a$", "a@b", "a#b", "a!", "a?",
            "a,b", "a(b)", "a()", "a=b", "a|b", "a&b", "a<b", "a+b", "a~", "a^b", "{a}", "a--", "a/*", "a*/", "é", "ä", "ａ", "а", "a\u0301",
            "ﬁ", "ı", "K", "ſ", "田", "😀", "a\0", "\0", "a\x00b", "\ud800", "a\u200b", "\ufeffa", "a\xa0", "x" * 49, "x" * 63, "x" * 64, "x" * 1000,
            "holdfast; drop schema public cascade", "holdfast.message", "a\u2028", "a\r", "a\x0b", "a\x1f", "٣", "a٣", "a²", "_é",
            "select", "user", "table", "order", "group", "all", "and", "left", "default", "current_user", "collation", "true", "null",
            "pg_catalog", "pg_temp", "pg_toast", "pg_x", "pg_", "information_schema", None, 1, b"a", ["a"],
        ],
    ),
]  # fmt: skip

PATTERNS: list[Case] = [
    *numbered(
        "pattern",
        True,
        [
            "*",
            "a",
            "order.placed",
            "order.*",
            "a.b.*",
            "x" * 200,
            "x" * 200 + ".*",
            "a b.*",
            "田.*",
            ".",
            ".a",
        ],
    ),
    *numbered("pattern", False, BAD_NAMES),
    *numbered(
        "pattern",
        False,
        [".*", "**", "*.*", "a*", "*a", "a.*.b", "*.a", "a.**", "a.*.*", "a*.*", "x" * 201, "x" * 201 + ".*"],
    ),
]


# --- Addresses of databases -----------------------------------------------------------------------------------------

URLS: list[Case] = [
    *numbered(
        "url",
        True,
        [
            "sqlite:///shop.db", "sqlite:////var/lib/shop.db", "sqlite:///:memory:", "sqlite:///./a.db", "sqlite:///../a.db", "sqlite:///a b.db",
            "sqlite:///a%20b.db", "sqlite:///ü.db", "sqlite:///a#b.db", "sqlite:///a@b.db", "sqlite:///a:b.db", "SQLITE:///a.db", "sqlite:///a/b/c",
            "postgresql://localhost/db", "postgres://localhost/db", "postgresql://", "postgresql:///db", "postgresql://host", "PostgreSQL://h/d",
            "postgresql://user@host/db", "postgresql://user:secret@host/db", "postgresql://user:secret@host:5432/db", "postgresql://user:@host/db",
            "postgresql://user:s%40cr%2Fet@host/db", "postgresql://user:a:b@host/db", "postgresql://:secret@host/db", "postgresql://u:p%25@h/d",
            "postgresql://[::1]/db", "postgresql://[::1]:5432/db", "postgresql://127.0.0.1:1/db", "postgresql://h:65535/db", "postgresql://a,b/db",
            "postgresql://a:1,b:2/db", "postgresql://u:secret@a:1,b:2/db", "postgresql://%2Fvar%2Frun%2Fpostgresql/db", "postgresql:///db?host=/tmp",
            "postgresql://h/d?schema=queue", "postgresql://h/d?sslmode=require", "postgresql://h/d?sslmode=require&schema=a&application_name=x%20y",
            "postgresql://h/d?password=secret", "postgresql://h/d?user=u&password=secret&schema=q", "postgresql://h/d?options=-c%20x%3Dy", "postgresql://h-1.x_y/d-e",
        ],
    ),
    *numbered(
        "url",
        False,
        [
            "", " ", "shop.db", "/var/lib/shop.db", ":memory:", "sqlite", "sqlite:", "sqlite:/", "sqlite://", "sqlite:///", "sqlite:////", "sqlite:///a/",
            "sqlite://shop.db", "sqlite://host/shop.db", "sqlite:shop.db", "sqlite:///a.db?mode=ro", "sqlite:///a.db?schema=x", "sqlite:///a\0.db",
            "sqlite:///a\n.db", " sqlite:///a.db", "sqlite:///a.db ", "sqlite:///a.db\n", "sqlite3:///a.db", "sqlite+aiosqlite:///a.db", "file:a.db",
            "mysql://h/d", "http://h/d", "redis://h", "postgresql+psycopg://h/d", "postgresql+asyncpg://u:secret@h/d", "postgres+psycopg2://h/d",
            "pgsql://h/d", "postgresql:h/d", "postgresql:/h/d", "postgresql://h:0/d", "postgresql://h:65536/d", "postgresql://h:x/d",
            "postgresql://h:-1/d", "postgresql://h:/d", "postgresql://h:5432:5433/d", "postgresql://u:secret@h:x/d", "postgresql://[::1/d",
            "postgresql://::1/d", "postgresql://u:sec@ret@h/d", "postgresql://u:sec/ret@h/d", "postgresql://u:sec#ret@h/d", "postgresql://h/a/b",
            "postgresql://u:secret%@h/d", "postgresql://u:100%secret@h/d", "postgresql://h/d%", "postgresql://h/d#x", "postgresql://h d/d",
            "postgresql://h/d?schema=A", "postgresql://h/d?schema=", "postgresql://h/d?schema=a;b", "postgresql://h/d?schema=a&schema=b",
            "postgresql://h/d?schema=select", "postgresql://h/d?schema=pg_x", "postgresql://h/d?schema", "postgresql://h/d?x", "postgresql://h\0/d",
            "postgresql://h/d\n", "postgresql://h/\ud800", "postgresql://h(/d", "postgresql://<h>/d", "host=h dbname=d password=secret",
            "user=u password='se cret' host=h", "postgresql://u:secret@/x@y/d", "://", "://h/d", "//h/d", None, 1, b"sqlite:///a.db", ["sqlite:///a.db"],
        ],
    ),
]  # fmt: skip
