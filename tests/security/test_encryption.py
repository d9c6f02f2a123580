"""Bodies encrypted at rest: nothing readable is stored, all works as without, and a missing key loses no message."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from holdfast import BodySealed, Context, Dead, Holdfast, InvalidMessage, InvalidSettings, RetryPolicy
from holdfast.bodies.keys import SEALED, Keys, key_of, new_key, read
from holdfast.clock import MovableClock
from holdfast.model.message import Reason
from tests.cli.conftest import Answer, Shell
from tests.worker.lab import PATIENCE, Lab

SECRET = "SECRETOFSOMEBODY"
ONCE = RetryPolicy(attempts_max=1)


def key(name: str) -> str:
    return new_key(name)


async def drain(app: Holdfast) -> None:
    app.prepare()
    await app.worker(until_idle=True).run()


def shop(lab: Lab, keys: Any, **options: Any) -> tuple[Holdfast, list[Any]]:
    app, seen = lab.app(keys=keys, **options), []

    @app.handler("order")
    async def order(body: dict, ctx: Context) -> None:
        seen.append(body)
        if "emit" in body:
            ctx.publish("emitted", {"child": body["emit"]})

    @app.handler("emitted")
    def emitted(body: dict) -> None:
        seen.append(body)

    @app.handler("many", batch=5)
    async def many(bodies: list[dict]) -> None:
        seen.extend(bodies)

    @app.handler("keyed", key=lambda body: body["customer"], per_key=1)
    async def keyed(body: dict) -> None:
        seen.append(body)

    @app.handler("dying", retry=ONCE)
    async def dying(body: dict) -> Dead:
        return Dead("never")

    return app, seen


@contextmanager
def connected(lab: Lab) -> Iterator[Any]:
    if lab.sqlite:
        with closing(sqlite3.connect(lab.url.removeprefix("sqlite:///"))) as db, db:
            yield db
    else:
        with psycopg.connect(lab.url) as db:
            yield db


def everything(lab: Lab) -> str:
    """Every row of every table, as text."""
    listed = (
        "select name from sqlite_master where type = 'table' and name like 'holdfast_%'"
        if lab.sqlite
        else "select 'holdfast.' || tablename from pg_tables where schemaname = 'holdfast'"
    )
    with connected(lab) as db:
        names = [name for (name,) in db.execute(listed).fetchall()]
        assert len(names) > 10
        return "\n".join(str(row) for name in names for row in db.execute(f"select * from {name}").fetchall())


# --- At rest ------------------------------------------------------------------------------------------------


async def test_nothing_readable_is_stored(lab: Lab) -> None:
    app, seen = shop(lab, key("k1"))
    app.publish("order", {"card": SECRET, "emit": SECRET}, stream="s")
    app.publish("many", {"card": SECRET})
    app.publish("keyed", {"card": SECRET, "customer": 3})
    app.publish("dying", {"card": SECRET})
    app.publish("nobody's", {"card": SECRET}, stream="events", event=True)
    app.publish("order", {"card": SECRET}, delay=3600, stream="later")
    assert SECRET not in everything(lab)
    await drain(app)
    assert len(seen) == 4
    assert all(SECRET in str(body) for body in seen)
    stored = everything(lab)
    assert SECRET not in stored
    assert "holdfast/sealed" in stored
    if lab.sqlite:
        path = Path(lab.url.removeprefix("sqlite:///"))
        files = [each for each in path.parent.iterdir() if each.name.startswith(path.name)]
        assert any(each.name.endswith("-wal") for each in files)
        assert all(SECRET.encode() not in each.read_bytes() for each in files)
    (event,) = app.events("events")
    assert json.loads(event.body) == {"card": SECRET}


async def test_what_fires_later_into_a_stream_still_opens(lab: Lab) -> None:
    clock = MovableClock()
    app, seen = shop(lab, key("k1"), clock=clock)
    app.publish("order", {"n": 1}, delay=60, stream="s")
    await drain(app)
    assert seen == []
    clock.advance(seconds=61)
    await drain(app)
    assert seen == [{"n": 1}]


async def test_plain_bodies_are_handled_beside_sealed_ones(lab: Lab) -> None:
    plain, _ = shop(lab, None)
    plain.publish("order", {"n": 1})
    sealing, seen = shop(lab, key("k1"))
    sealing.publish("order", {"n": 2})
    await drain(sealing)
    assert sorted(each["n"] for each in seen) == [1, 2]


def test_a_body_that_looks_sealed_is_refused(lab: Lab) -> None:
    app, _ = shop(lab, None)
    with pytest.raises(InvalidMessage, match="marks bodies that are encrypted"):
        app.publish("order", {"holdfast/sealed": "A256GCM", "key": "x", "data": ""})
    sealing, _ = shop(lab, key("k1"))
    sealing.publish("order", {"holdfast/sealed": "A256GCM"})  # it is inside the envelope then
    assert len(lab.rows("message")) == 1


# --- Keys that are missing or wrong --------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [None, key("other"), key("k1")], ids=["none", "another", "wrong"])
async def test_a_message_without_its_key_waits_and_nothing_is_counted(lab: Lab, keys: str | None) -> None:
    clock = MovableClock()
    right = key("k1")
    publisher, _ = shop(lab, right, clock=clock)
    publisher.publish("order", {"card": SECRET})
    publisher.publish("many", {"card": SECRET})
    worker, seen = shop(lab, keys, clock=clock)
    for seconds in (0, 16, 31):
        clock.advance(seconds=seconds)
        await drain(worker)
    assert seen == []
    rows = lab.rows("message")
    assert [(row["attempts"], row["failures"], row["refunds"], row["reason"]) for row in rows] == [
        (0, 0, 3, 6)
    ] * 2
    assert all("BodySealed: The body of message" in str(row["errors"]) for row in rows)
    assert lab.rows("dead") == []
    assert SECRET not in everything(lab)
    clock.advance(seconds=61)
    mended, seen = shop(lab, right, clock=clock)
    await drain(mended)
    assert seen == [{"card": SECRET}] * 2


async def test_a_stream_waits_in_its_order(lab: Lab) -> None:
    clock = MovableClock()
    publisher, _ = shop(lab, key("k1"), clock=clock)
    publisher.publish("order", {"n": 1}, stream="s")
    plain, seen = shop(lab, None, clock=clock)
    plain.publish("order", {"n": 2}, stream="s")
    await drain(plain)
    assert seen == []
    first, second = sorted(lab.rows("message"), key=lambda row: row["seq"])
    (held,), (waits,) = plain.operations.why(first["id"]), plain.operations.why(second["id"])
    assert "no attempt counted. The body of message" in held
    assert f"waits for {first['id']}" in waits


async def test_text_that_is_moved_to_another_message_does_not_open(lab: Lab) -> None:
    app, seen = shop(lab, key("k1"))
    cheap, dear = app.publish("order", {"price": 1}).id, app.publish("order", {"price": 1000}).id
    table = "holdfast_message" if lab.sqlite else "holdfast.message"
    with connected(lab) as db:
        moved = f"(select body from {table} where id = '{cheap}')"
        db.execute(f"update {table} set body = {moved} where id = '{dear}'")
    await drain(app)
    assert seen == [{"price": 1}]
    (row,) = lab.rows("message")
    assert "belongs to another message" in str(row["errors"])


def test_text_is_bound_to_its_id_and_type() -> None:
    keys = Keys(key("k1"), MovableClock())
    id = uuid4()
    sealed = keys.seal(id, "order", '{"n":1}')
    assert keys.open(id, "order", sealed) == '{"n":1}'
    assert sealed != keys.seal(id, "order", '{"n":1}')
    for other in ((uuid4(), "order"), (id, "refund")):
        with pytest.raises(BodySealed):
            keys.open(*other, sealed)
    for broken in (
        sealed[:-2] + "}",
        sealed.replace("A256GCM", "none"),
        sealed.replace('data":"', 'data":"AA'),
        SEALED,
    ):
        with pytest.raises(BodySealed):
            keys.open(id, "order", broken)


# --- Rotation ----------------------------------------------------------------------------------------------------


async def test_rotation_touches_nothing_but_the_text(lab: Lab) -> None:
    old, new = key("old"), key("new")
    before, _ = shop(lab, old)
    for n in range(120):
        before.publish("order", {"n": n}, stream=f"s{n % 3}" if n % 2 else None, dedupe=f"d{n}")
    before.publish("dying", {"card": SECRET})
    before.publish("nobody's", {"card": SECRET}, stream="events", event=True)
    await before.worker(until_idle=True, queues=["dying"]).run()
    held = before.process_work_batch(want={"order": 3})
    plain, _ = shop(lab, None)
    plain.publish("order", {"n": 120})
    after, seen = shop(lab, [new, old])
    untouched = {row["seq"]: {k: v for k, v in row.items() if k != "body"} for row in lab.rows("message")}
    leases = lab.rows("lease")

    done = after.operations.keys.rotate()
    assert (done.unopened, done.left) == (0, 0)
    assert done.changed >= 122
    (noted,) = after.operations.audit(action="keys.rotate")
    assert (noted.target, noted.count) == ("new", done.changed)
    assert {
        row["seq"]: {k: v for k, v in row.items() if k != "body"} for row in lab.rows("message")
    } == untouched
    assert lab.rows("lease") == leases
    counts = {(each.key, each.kind): each.count for each in after.operations.keys.counts()}
    assert counts[("new", "dead")] == 1
    assert counts[("new", "events")] == 1
    assert counts[(None, "pending")] == 1
    assert not any(name == "old" for name, _ in counts)
    assert after.operations.keys.rotate().changed == 0
    assert after.operations.keys.rotate(plain=True).changed == 1

    only_new, seen = shop(lab, new)
    only_new.process_work_batch([only_new.done(each) for each in held.work])
    await drain(only_new)
    assert len(seen) == 121 - len(held.work)
    only_new.operations.dead.redrive(lab.rows("dead")[0]["id"])
    assert json.loads(only_new.events("events")[0].body) == {"card": SECRET}


def test_rotation_leaves_what_it_cannot_open(lab: Lab) -> None:
    lost, _ = shop(lab, key("lost"))
    lost.publish("order", {"n": 1})
    kept, _ = shop(lab, key("kept"))
    kept.publish("order", {"n": 2})
    after, _ = shop(lab, key("kept2"))
    bodies = sorted(row["body"] for row in lab.rows("message"))
    done = after.operations.keys.rotate()
    assert (done.changed, done.unopened, done.left) == (0, 2, 2)
    assert sorted(row["body"] for row in lab.rows("message")) == bodies


async def test_an_edited_dead_letter_is_sealed_again_and_rotated_with_its_original(lab: Lab) -> None:
    old, new = key("old"), key("new")
    app, _ = shop(lab, old)
    id = app.publish("dying", {"card": SECRET}).id
    await drain(app)
    app.operations.dead.edit(id, json.dumps({"card": SECRET + "2"}))
    assert SECRET not in everything(lab)
    after, _ = shop(lab, [new, old])
    assert after.operations.keys.rotate().changed == 2
    ((letter, content),) = after.operations.dead.show(id)
    assert json.loads(after.operations.reveal(id, letter.type, content.body)) == {"card": SECRET + "2"}
    (original,) = [death.body for death in content.deaths if death.body is not None]
    assert key_of(original) == "new"
    assert json.loads(after.operations.reveal(id, letter.type, original)) == {"card": SECRET}


# --- Keys --------------------------------------------------------------------------------------------------------


def test_keys_from_a_function_are_asked_for_again(tmp_path: Path) -> None:
    clock, first, second = MovableClock(), key("first"), key("second")
    given = [first]
    asked = []

    def source() -> list[str]:
        asked.append(1)
        return list(given)

    keys = Keys(source, clock)
    assert asked == []
    id = uuid4()
    old = keys.seal(id, "t", "1")
    for _ in range(100):
        keys.seal(id, "t", "1")
    assert len(asked) == 1
    given.insert(0, second)
    clock.advance(seconds=61)
    assert key_of(keys.seal(id, "t", "1")) == "second"
    assert keys.open(id, "t", old) == "1"
    third = key("third")
    elsewhere = Keys([third], clock).seal(id, "t", "3")
    given.append(third)
    clock.advance(seconds=2)
    assert keys.open(id, "t", elsewhere) == "3"  # a key that is missed is asked for before the minute is over


def test_a_function_that_fails_leaves_the_keys_that_it_gave() -> None:
    clock, answers = MovableClock(), [key("k1")]
    keys = Keys(lambda: answers.pop(), clock)
    sealed = keys.seal(uuid4(), "t", "1")
    clock.advance(seconds=61)
    assert key_of(sealed) == key_of(keys.seal(uuid4(), "t", "1")) == "k1"
    with pytest.raises(BodySealed, match="could not be loaded"):
        Keys(lambda: answers.pop(), clock).seal(uuid4(), "t", "1")


@pytest.mark.parametrize(
    "source",
    ["", "no-colon", "k:short", "k:" + "!" * 44, [], {"k": b"short"}, {"a b": b"x" * 32},
     ["k:" + base64.b64encode(b"x" * 32).decode()] * 2, "k:" + base64.b64encode(b"x" * 16).decode()],
)  # fmt: skip
def test_keys_that_are_none_are_refused_without_being_shown(source: Any) -> None:
    with pytest.raises(InvalidSettings) as refusal:
        read(source)
    assert "x" * 8 not in str(refusal.value)
    assert "eHh4eHh4" not in str(refusal.value)


def test_keys_are_never_shown(tmp_path: Path) -> None:
    made = key("k1")
    app = Holdfast(f"sqlite:///{tmp_path / 'shop.db'}", keys=made)
    shown = f"{app!r}{app.keys!r}{app.settings!r}{app.operations.keys.names}"
    assert made.partition(":")[2] not in shown
    assert "k1" in shown


def test_the_environment_gives_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_KEYS", f"{key('b')},\n {key('a')}")
    app = Holdfast(f"sqlite:///{tmp_path / 'shop.db'}")
    assert app.keys is not None
    assert app.keys.names == ("b", "a")


def test_what_is_sealed_does_not_need_to_be_written_by_us() -> None:
    """The envelope is documented by this: HKDF-Expand and AES-256-GCM, with nothing of ours but names."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

    raw, id = os.urandom(32), uuid4()
    sealed = json.loads(Keys({"k1": raw}, MovableClock()).seal(id, "order", '{"n":1}'))
    data = base64.b64decode(sealed["data"])
    derived = HKDFExpand(SHA256(), 32, b"holdfast body 1\0" + id.bytes).derive(raw)
    opened = AESGCM(derived).decrypt(data[:12], data[12:], f"holdfast 1\0k1\0{id}\0order".encode())
    assert (sealed["holdfast/sealed"], sealed["key"], opened) == ("A256GCM", "k1", b'{"n":1}')


# --- The command line -------------------------------------------------------------------------------------------


def holdfast(lab: Lab, *arguments: str, keys: str | None = None) -> Answer:
    return Shell(lab.url)(*arguments, database=False, HOLDFAST_DATABASE_URL=lab.url, HOLDFAST_KEYS=keys)


def test_the_command_line_reveals_only_what_it_is_told_to(lab: Lab) -> None:
    made = key("k1")
    app, _ = shop(lab, made)
    id = str(app.publish("dying", {"card": SECRET}).id)
    asyncio.run(drain(app))
    shown = holdfast(lab, "dead", "show", id, keys=made)
    assert SECRET not in shown.out
    assert "(sealed with key k1; --reveal opens it)" in shown.out
    as_json = holdfast(lab, "dead", "show", id, "--json", keys=made)
    assert SECRET not in as_json.out
    assert json.loads(as_json.out)[0]["body"]["key"] == "k1"
    assert SECRET in holdfast(lab, "dead", "show", id, "--reveal", keys=made).out
    assert SECRET in holdfast(lab, "messages", "show", id, "--reveal", "--json", keys=made).out
    refused = holdfast(lab, "dead", "show", id, "--reveal")
    assert refused.code == 2
    assert "HOLDFAST_KEYS" in refused.err
    wrong = holdfast(lab, "dead", "show", id, "--reveal", keys=key("k2"))
    assert (wrong.code, "'k1'" in wrong.err) == (1, True)


def test_keys_new_list_rotate(lab: Lab) -> None:
    made = holdfast(lab, "keys", "new", "first").out.strip()
    assert read(made).keys() == {"first"}
    app, _ = shop(lab, made)
    app.publish("order", {"n": 1})
    newer = holdfast(lab, "keys", "new").out.strip()
    both = f"{newer} {made}"
    rows = json.loads(holdfast(lab, "keys", "list", "--json", keys=both).out)
    assert {row["key"]: row["pending"] for row in rows} == {newer.partition(":")[0]: 0, "first": 1}
    assert "1 sealed again" in holdfast(lab, "keys", "rotate", keys=both).out
    assert holdfast(lab, "keys", "rotate", keys=key("another")).code == 3
    assert holdfast(lab, "keys", "rotate").code == 2
    assert "first" in holdfast(lab, "keys", "list", keys=both).out


def test_reasons_stay() -> None:
    assert Reason.DEPENDENCY_FAILURE == 6


async def test_rotation_beside_workers_loses_nothing_and_handles_nothing_twice(lab: Lab) -> None:
    old, new = key("old"), key("new")
    before, _ = shop(lab, old)
    before.publish_many(before.message("order", {"n": n}, stream=f"s{n % 7}") for n in range(700))
    after, seen = shop(lab, [new, old])
    async with after.running():
        for _ in range(5):
            done = await asyncio.to_thread(after.operations.keys.rotate)
            assert done.unopened == 0
        async with asyncio.timeout(PATIENCE):
            while lab.rows("message"):  # noqa: ASYNC110 - the database tells
                await asyncio.sleep(0.02)
    assert sorted(each["n"] for each in seen) == list(range(700))
    for stream in range(7):
        ours = [each["n"] for each in seen if each["n"] % 7 == stream]
        assert ours == sorted(ours)
