"""What can only be tried with a broker of one's own: kill -9, an alarm that blocks, TLS."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from holdfast.testing.transports.setting import Fates, Setting, read_all, send, send_until_answered, until
from holdfast.transports import CONFIRMED, Outgoing, RabbitMQ, Sender, TransportBroken
from tests import brokers
from tests.servers import free_port, wait_until
from tests.transports.certificates import Authority
from tests.transports.test_hazards import setting

ROOT = Path(__file__).resolve().parents[2]
LONG = pytest.mark.faults("storms")


@pytest.mark.parametrize("kills", [pytest.param(1), pytest.param(20, marks=LONG)])
@pytest.mark.timeout(900)
async def test_a_broker_that_is_killed_has_all_that_it_confirmed(
    own_broker: brokers.Broker, kills: int
) -> None:
    given = setting(own_broker.url)
    sender = given.connector.sender([given.to])
    await sender.open()
    # RabbitMQ writes down within half a second that it has the queue; before, a kill loses it.
    await asyncio.sleep(2)
    sent: list[Outgoing] = []
    for _ in range(kills):
        batch = given.messages(300)
        sending = asyncio.ensure_future(send(sender, batch))
        await asyncio.sleep(0.01)
        await asyncio.to_thread(own_broker.kill9)
        told = await sending
        await until(lambda: sender.broken() is not None)
        await asyncio.to_thread(own_broker.start)
        await until_sent(sender, [each for index, each in enumerate(batch) if told.get(index) != CONFIRMED])
        sent += batch
    await sender.close()
    ids = [each.id for each in await read_all(given)]
    assert set(ids) == {each.id for each in sent}
    print(
        f"{kills} kills of {own_broker.tree.version}: {len(sent)} sent, lost 0, {len(ids) - len(sent)} came twice"
    )


async def until_sent(sender: Sender, batch: list[Outgoing]) -> None:
    """A broker that just started refuses for a moment: its queues have no leader yet."""
    left = batch
    for _ in range(100):
        if sender.broken() is not None:
            with contextlib.suppress(TransportBroken):
                await sender.open()
        told = await send(sender, left)
        left = [each for index, each in enumerate(left) if told.get(index) != CONFIRMED]
        if not left:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"the broker did not take {len(left)} of the batch")


def ended_or_blocked(call: asyncio.Task[Fates], sender: Sender) -> bool:
    return call.done() or sender.broken() is not None


async def send_until_blocked(sender: Sender, given: Setting) -> tuple[asyncio.Task[Fates], int]:
    """The call that the alarm holds up, and how many messages were confirmed before.

    The alarm reaches the connections a moment after the command has returned, and only who sends hears of it.
    """
    for confirmed in range(1000):
        under_way = asyncio.create_task(send(sender, [given.message()]))
        await until(partial(ended_or_blocked, under_way, sender))
        if not under_way.done() or under_way.result() == {}:
            return under_way, confirmed
        assert under_way.result() == {0: CONFIRMED}
    raise AssertionError("the broker has an alarm and confirmed a thousand messages")


async def test_an_alarm_blocks_and_is_told_at_once(own_broker: brokers.Broker) -> None:
    given = setting(own_broker.url)
    sender = given.connector.sender()
    await sender.open()
    assert await send(sender, [given.message()]) == {0: CONFIRMED}
    await asyncio.to_thread(own_broker.ctl, "set_vm_memory_high_watermark", "0.00000001")
    under_way, more = await send_until_blocked(sender, given)
    broken = sender.broken()
    assert broken is not None
    assert broken.everyone
    assert "memory" in broken.why
    assert await send(sender, given.messages(3)) == {}
    await asyncio.to_thread(own_broker.ctl, "set_vm_memory_high_watermark", "absolute", "4GiB")
    assert await under_way == {0: CONFIRMED}
    await until(lambda: sender.broken() is None)
    assert len((await send(sender, given.messages(3))).confirmed) == 3
    await sender.close()
    assert len(await read_all(given)) == 5 + more


async def test_blocked_for_too_long_the_connection_is_given_up(own_broker: brokers.Broker) -> None:
    given = setting(own_broker.url, confirm_seconds=1)
    sender = given.connector.sender()
    await sender.open()
    assert await send(sender, [given.message()]) == {0: CONFIRMED}
    await asyncio.to_thread(own_broker.ctl, "set_vm_memory_high_watermark", "0.00000001")
    try:
        under_way, _ = await send_until_blocked(sender, given)
        assert await under_way == {}
        assert sender.broken() is not None
        await sender.close()
    finally:
        await asyncio.to_thread(own_broker.ctl, "set_vm_memory_high_watermark", "absolute", "4GiB")
    assert await send_until_answered(sender, [given.message()]) == {0: CONFIRMED}
    await sender.close()


# --- TLS --------------------------------------------------------------------------------------------------------------


async def test_tls_with_a_certificate_that_is_trusted(rabbitmq_version: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.server("server")
    port = free_port()
    broker = brokers.own_broker(
        rabbitmq_version,
        **{
            "listeners.ssl.1": f"127.0.0.1:{port}",
            "ssl_options.cacertfile": str(authority.file),
            "ssl_options.certfile": str(certificate),
            "ssl_options.keyfile": str(key),
        },
    )
    try:
        assert await asyncio.to_thread(wait_until, lambda: is_answering(port), 20)
        given = setting(f"amqps://guest:guest@localhost:{port}/", ca=str(authority.file))
        sender = given.connector.sender()
        await sender.open()
        assert len((await send(sender, given.messages(200))).confirmed) == 200
        await sender.close()
        assert len(await read_all(given)) == 200
        with pytest.raises(TransportBroken, match="TLS"):  # the system does not trust it
            await RabbitMQ(f"amqps://guest:guest@localhost:{port}/").sender().open()
    finally:
        broker.close()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@contextlib.contextmanager
def tls_server(certificate: Path, key: Path, *, is_old: bool = False) -> Iterator[tuple[int, list[bytes]]]:
    """Answers TLS and notes what it is told inside: nothing, if the client is careful."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if is_old:
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.load_cert_chain(certificate, key)
    heard: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                with contextlib.suppress(OSError), context.wrap_socket(client, server_side=True) as inside:
                    heard.append(inside.recv(100))

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()[1], heard
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


@pytest.mark.parametrize(
    "kind", ["expired", "not yet", "wrong name", "self-signed", "unknown authority", "old protocol"]
)
async def test_tls_that_is_not_right_is_refused(kind: str, authority: Authority, tmp_path: Path) -> None:
    match kind:
        case "expired":
            pair = authority.server("bad", days=-30)
        case "not yet":
            pair = authority.server("bad", days=30)
        case "wrong name":
            pair = authority.server("bad", host="broker.example.com")
        case "self-signed":
            pair = authority.server("bad", self_signed=True)
        case "unknown authority":
            (tmp_path / "other").mkdir()
            pair = Authority(tmp_path / "other").server("bad")
        case _:
            pair = authority.server("bad")
    with tls_server(*pair, is_old=kind == "old protocol") as (port, heard):
        sender = RabbitMQ(f"amqps://guest:guest@localhost:{port}/", ca=str(authority.file)).sender()
        with pytest.raises(TransportBroken, match="TLS"):
            await sender.open()
        await sender.close()
    assert heard == []


async def test_certificates_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    (tmp_path / "bad.pem").write_text("nonsense")
    for settings in ({"ca": str(tmp_path / "none")}, {"ca": str(tmp_path / "bad.pem")}):
        with pytest.raises(TransportBroken, match="certificates"):
            await RabbitMQ("amqps://guest:guest@localhost:1/", **settings).sender().open()  # type: ignore[arg-type]


# --- The servers of the tests themselves ------------------------------------------------------------------------------


def test_a_killed_run_leaves_no_server_behind(rabbitmq_version: str) -> None:
    program = f"""
import time
from tests import brokers
print(brokers.shared_url({rabbitmq_version!r}), flush=True)
time.sleep(600)
"""
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_XDIST_WORKER"}
    run = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    port = int(run.stdout.readline().strip().rsplit(":", 1)[1].strip("/"))
    assert is_answering(port)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    run.stdout.close()
    assert wait_until(lambda: not is_answering(port), 30)
    assert wait_until(
        lambda: not list(Path(tempfile.gettempdir()).glob(f"holdfast-rabbitmq-{run.pid}-*")), 30
    )


def is_answering(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
