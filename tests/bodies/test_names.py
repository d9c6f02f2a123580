"""Names, patterns and addresses: accepted as they are, or refused with what, why and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import psycopg.conninfo
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidMessage, InvalidSettings, UsageError
from holdfast.model import names
from holdfast.store.text import in_schema
from tests import hostile
from tests.bodies.test_bodies import named


def check(function: Callable[[object], str], error: type[UsageError], value: Any, accepted: bool) -> None:
    if accepted:
        assert function(value) == value
        return
    with pytest.raises(error) as raised:
        function(value)
    text = str(raised.value)
    assert text[0].isupper()
    assert text.isprintable()
    assert len(text) < 400


@pytest.mark.parametrize("value, accepted", named(hostile.TYPES))
def test_types(value: Any, accepted: bool) -> None:
    check(names.type_name, InvalidMessage, value, accepted)


@pytest.mark.parametrize("value, accepted", named(hostile.STREAMS))
def test_streams_dedupe_keys_and_subjects(value: Any, accepted: bool) -> None:
    check(names.stream_name, InvalidMessage, value, accepted)
    check(names.dedupe_key, InvalidMessage, value, accepted)
    check(names.subject, InvalidMessage, value, accepted)


@pytest.mark.parametrize(
    "value, accepted", named(hostile.TYPES[: len(hostile.GOOD_NAMES + hostile.BAD_NAMES)])
)
def test_queues_and_handlers(value: Any, accepted: bool) -> None:
    # @ is kept for the versions of orchestrations: name@version
    check(names.queue_name, InvalidSettings, value, accepted and "@" not in value)
    check(names.handler_name, InvalidSettings, value, accepted)


def test_the_engines_own_queues_are_its_own() -> None:
    check(names.queue_name, InvalidSettings, "holdfast/timer", False)
    check(names.queue_name, InvalidSettings, "holdfast", True)


@pytest.mark.parametrize("value, accepted", named(hostile.HEADER_NAMES))
def test_header_names(value: Any, accepted: bool) -> None:
    check(names.header_name, InvalidMessage, value, accepted)


@pytest.mark.parametrize("value, accepted", named(hostile.IDENTIFIERS))
def test_schemas(value: Any, accepted: bool) -> None:
    check(names.schema_name, InvalidSettings, value, accepted)
    if accepted:
        assert in_schema("select holdfast.x", value) == f"select {value}.x"


@pytest.mark.parametrize("value, accepted", named(hostile.PATTERNS))
def test_subscriptions(value: Any, accepted: bool) -> None:
    check(names.pattern, InvalidSettings, value, accepted)


@pytest.mark.parametrize(
    "pattern, type_, expected",
    [
        ("*", "a", True),
        ("order.placed", "order.placed", True),
        ("order.placed", "order.placed.eu", False),
        ("order.placed", "Order.placed", False),
        ("order.*", "order.placed", True),
        ("order.*", "order.placed.eu", True),
        ("order.*", "order.", True),
        ("order.*", "order", False),
        ("order.*", "orders.placed", False),
        ("order.*", "reorder.placed", False),
        ("a_b.*", "axb.c", False),
        ("a%", "ab", False),
    ],
)
def test_what_a_subscription_wants(pattern: str, type_: str, expected: bool) -> None:
    assert names.matches(pattern, type_) is expected


@given(st.text())
def test_any_text_is_a_name_or_is_refused(value: str) -> None:
    for function in (names.type_name, names.stream_name, names.queue_name, names.header_name, names.pattern):
        try:
            assert function(value) == value
        except UsageError as error:
            text = str(error)
        else:
            continue
        assert "\0" not in text


# --- Addresses -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value, accepted", named(hostile.URLS))
def test_addresses(value: Any, accepted: bool) -> None:
    if not accepted:
        with pytest.raises(InvalidSettings) as raised:
            names.database_url(value)
        assert not any(
            word in str(raised.value) for word in ("secret", "sec@ret", "sec/ret", "sec#ret", "se cret")
        )
        assert "\0" not in str(raised.value)
        return
    url, schema = names.database_url(value)
    assert "schema=" not in url
    assert schema == value.partition("schema=")[2].partition("&")[0] or schema == "holdfast"
    if url.startswith("sqlite:"):
        assert url == "sqlite:" + value.partition(":")[2]
    else:
        assert url.startswith("postgresql://")
        psycopg.conninfo.conninfo_to_dict(url)  # libpq takes it apart too
    assert "secret" not in names.display_url(value)


@pytest.mark.parametrize(
    "url, clean, schema",
    [
        ("postgres://u:p@h:1/d?schema=q", "postgresql://u:p@h:1/d", "q"),
        ("postgresql://h/d?a=b&schema=q&c=d%20e", "postgresql://h/d?a=b&c=d%20e", "q"),
        ("postgresql://h/d?options=-c%20x%3Dy", "postgresql://h/d?options=-c%20x%3Dy", "holdfast"),
        ("postgresql://u:%40%2F@h/d", "postgresql://u:%40%2F@h/d", "holdfast"),
        ("postgresql:///d?host=/tmp", "postgresql:///d?host=/tmp", "holdfast"),
        ("sqlite:///a.db", "sqlite:///a.db", "holdfast"),
        ("SQLite:////A/b.db", "sqlite:////A/b.db", "holdfast"),
    ],
)
def test_what_an_address_means(url: str, clean: str, schema: str) -> None:
    assert names.database_url(url) == (clean, schema)


@pytest.mark.parametrize(
    "url, shown",
    [
        ("postgresql://u:secret@h:1/d?schema=q", "postgresql://u:***@h:1/d?schema=q"),
        ("postgresql://u@h/d", "postgresql://u@h/d"),
        ("postgresql://h/d", "postgresql://h/d"),
        ("postgresql://:secret@h/d", "postgresql://:***@h/d"),
        ("postgresql://u:a:b@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:sec@ret@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:sec/ret@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:p@h/d?email=a@b", "postgresql://u:***@h/d?email=a@b"),
        ("postgresql://h/d?password=secret&x=1", "postgresql://h/d?password=***&x=1"),
        ("postgresql://h/d?SSLPassword=secret", "postgresql://h/d?SSLPassword=***"),
        ("host=h password=secret dbname=d", "host=h password=*** dbname=d"),
        ("password = 'sec \\' ret' host=h", "password = *** host=h"),
        ("mysql+x://u:secret@h/d", "mysql+x://u:***@h/d"),
        ("sqlite:///a@b.db", "sqlite:///a@b.db"),
        ("sqlite:///a.db", "sqlite:///a.db"),
        ("a\nb", "a?b"),
    ],
)
def test_passwords_are_not_shown(url: str, shown: str) -> None:
    assert names.display_url(url) == shown


@given(st.text(min_size=3).map(lambda each: f"~{each}~"), st.sampled_from(["", "u", "ü"]), st.text())
def test_no_password_is_ever_shown(password: str, user: str, tail: str) -> None:
    shown = names.display_url(f"postgresql://{user}:{password}@{tail}")
    assert password not in shown or password in tail


@given(st.text())
def test_any_text_is_an_address_or_is_refused(text: str) -> None:
    for url in (text, f"sqlite:///{text}", f"postgresql://{text}", f"postgresql://h/d?{text}"):
        try:
            names.database_url(url)
        except InvalidSettings:
            pass
