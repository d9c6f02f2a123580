"""One connection of pika's `AsyncioConnection`, as futures. The only module that knows how pika works inside a loop.

pika works with callbacks. Each call that is awaited has a future here, which also ends when the channel or the
connection does. Two features that pika lacks are added by a layer between it and the loop (`_Loop`): to stop reading
the socket for a while, so that a broker cannot fill the memory, and to end a connection without the broker's help.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import InvalidSettings
from ..contract import Broken, Outgoing, TransportBroken
from ..secrets import revealed
from .address import Address
from .topology import Call, Topology

if TYPE_CHECKING:
    from . import RabbitMQ
    from .frames import Delivery

CLOSE_SECONDS = 3.0


def pika() -> Any:
    """Import the client when it is first needed."""
    try:
        import pika as client
    except ImportError:
        raise InvalidSettings("RabbitMQ needs the package pika: pip install 'holdfast[rabbitmq]'.") from None
    return client


@dataclass(frozen=True, slots=True)
class Closed:
    """Why a channel has ended. `code` is AMQP's, 0 if the connection was lost or we closed it ourselves."""

    code: int
    text: str


class ChannelClosed(Exception):
    """A call on a channel that was closed instead of answered."""

    def __init__(self, closed: Closed) -> None:
        super().__init__(closed.text)
        self.closed = closed


class _Loop:
    """The loop as pika sees it. Remembers who reads which socket."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._readers: dict[int, tuple[Callable[..., object], tuple[object, ...]]] = {}
        self._is_held = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def add_reader(self, fd: int, callback: Callable[..., object], *args: object) -> None:
        self._readers[fd] = (callback, args)
        if not self._is_held:
            self._loop.add_reader(fd, callback, *args)

    def remove_reader(self, fd: int) -> bool:
        self._readers.pop(fd, None)
        return self._loop.remove_reader(fd)

    def hold(self, is_held: bool) -> None:
        """Stops or resumes reading. When it stops, the network's buffers fill, and then the broker waits."""
        if is_held != self._is_held:
            self._is_held = is_held
            for fd, (callback, args) in self._readers.items():
                if is_held:
                    self._loop.remove_reader(fd)
                else:
                    self._loop.add_reader(fd, callback, *args)

    def hang_up(self) -> None:
        """Ends every connection at once, without a message to the broker. pika finds its socket at its end."""
        self.hold(False)
        for fd in list(self._readers):
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as copy:
                copy.shutdown(socket.SHUT_RDWR)


class Link:
    """A connection to the broker: opened once, and useless when it is lost."""

    def __init__(self, broker: RabbitMQ, on_lost: Callable[[Broken], None]) -> None:
        self._broker, self._on_lost = broker, on_lost
        self._loop = asyncio.get_running_loop()
        self._between = _Loop(self._loop)
        self._pending: dict[int, set[asyncio.Future[Any]]] = {}  # by number of the channel
        self._connection: Any = None
        self.lost: Broken | None = None
        self.blocked: str | None = None
        self._ended = self._loop.create_future()

    # Opening and closing.

    async def open(self, topology: Topology) -> None:
        """Connects, and declares or checks what must be there; or raises TransportBroken, closed."""
        try:
            async with asyncio.timeout(self._broker.connect_seconds):
                await self._connect()
                await self.prepare(topology)
        except TimeoutError:
            self._give_up(Broken(f"it did not answer within {self._broker.connect_seconds:g} s"))
            raise TransportBroken(f"RabbitMQ at {self._where()} cannot be used: {self._why()}.") from None
        except asyncio.CancelledError:
            self._give_up(Broken("opening it was given up"))
            raise
        except InvalidSettings as mistake:  # a secret that does not exist, a package that is missing
            raise TransportBroken(str(mistake)) from None
        except ChannelClosed as ended:
            await self.close()
            raise TransportBroken(
                f"RabbitMQ at {self._where()} cannot be used: {ended.closed.text}."
            ) from None
        except TransportBroken:
            await self.close()
            raise

    async def _connect(self) -> None:
        client = pika()
        from .wire import Connection

        opened: asyncio.Future[None] = self._loop.create_future()

        def on_open(_: Any) -> None:
            _resolve(opened, None)

        def on_error(_: Any, error: BaseException) -> None:
            self._end(_judged(error, self._address.user))
            _resolve(opened, None)

        self._address = Address.of(revealed(self._broker.url))
        parameters = self._parameters(client)
        self._connection = Connection(
            parameters,
            on_open_callback=on_open,
            on_open_error_callback=on_error,
            on_close_callback=lambda _, error: self._end(_judged(error, self._address.user)),
            custom_ioloop=self._between,
        )
        await opened
        if self.lost is not None:
            raise TransportBroken(
                f"RabbitMQ at {self._where()} cannot be used: {self.lost.why}.", everyone=self.lost.everyone
            )
        self._connection.add_on_connection_blocked_callback(self._on_blocked)
        self._connection.add_on_connection_unblocked_callback(self._on_unblocked)

    def _parameters(self, client: Any) -> Any:
        address, broker = self._address, self._broker
        password = (
            revealed(broker.password) or address.password or ("guest" if address.user == "guest" else "")
        )
        return client.ConnectionParameters(
            host=address.host,
            port=address.port,
            virtual_host=address.vhost,
            credentials=client.PlainCredentials(address.user, password, erase_on_connect=True),
            heartbeat=broker.heartbeat,
            blocked_connection_timeout=broker.confirm_seconds,
            socket_timeout=broker.connect_seconds,
            stack_timeout=broker.connect_seconds,
            connection_attempts=1,
            ssl_options=self._tls(client) if address.has_tls else None,
            client_properties={"connection_name": "holdfast"},
        )

    def _tls(self, client: Any) -> Any:
        """Always with the certificate and the name checked."""
        try:
            context = ssl.create_default_context(cafile=self._broker.ca)
            if self._broker.certificate:
                context.load_cert_chain(self._broker.certificate)
        except (OSError, ssl.SSLError) as error:
            what = getattr(error, "strerror", None) or type(error).__name__
            raise TransportBroken(
                f"RabbitMQ's certificates cannot be read ({what}): check ca= and certificate=."
            ) from None
        return client.SSLOptions(context, self._address.host)

    async def prepare(self, topology: Topology) -> None:
        channel: Any = None
        for call in topology.calls(self.server):
            if channel is None:
                channel = await self.channel()
            try:
                await self.call(channel, call.method, **call.arguments)
            except ChannelClosed as ended:
                if not (call.may_exist_otherwise and "x-delivery-limit" in ended.closed.text):
                    raise self._unprepared(call, ended.closed) from None
                channel = None  # the queue is from a time before the broker had such a limit
        if channel is not None:
            await self.close_channel(channel)

    def _unprepared(self, call: Call, closed: Closed) -> TransportBroken:
        if closed.code == 0:
            return TransportBroken(f"RabbitMQ at {self._where()} cannot be used: {closed.text}.")
        remedies = {
            404: "is missing there: create it, or let it be declared",
            406: "exists with other settings: make them equal, or check it only (may_declare=False)",
            403: "may not be used by this user: give it the permission",
        }
        what = remedies.get(closed.code, "cannot be declared or checked")
        return TransportBroken(
            f"RabbitMQ at {self._where()} cannot be used: {call.about} {what}. ({closed.code} {closed.text})",
            everyone=True,
        )

    def _where(self) -> str:
        return str(self._address) if hasattr(self, "_address") else "its address"

    @property
    def server(self) -> tuple[int, ...]:
        """The broker's version."""
        version = str((self._connection.server_properties or {}).get("version", "0"))
        return tuple(int(each) for each in re.findall(r"\d+", version)[:3])

    async def close(self) -> None:
        """Closes the connection in order if the broker answers, and cuts it if not."""
        if self._connection is None or self._connection.is_closed:
            self._end(Broken("it is closed"))
            return
        self._between.hold(False)
        # Whatever pika has to say about a connection that is closing already.
        with contextlib.suppress(Exception):
            self._connection.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.shield(self._ended)
        self._give_up(Broken("it is closed"))

    def _give_up(self, why: Broken) -> None:
        self._end(why)
        if self._connection is not None and not self._connection.is_closed:
            self._between.hang_up()
            if not self._connection.is_open and not self._connection.is_closing:
                self._connection.close()  # not yet open: there may be no socket to close

    def break_off(self, why: Broken) -> None:
        """Ends a connection that cannot be trusted any more, at once."""
        self._give_up(why)

    def _why(self) -> str:
        return self.lost.why if self.lost else "it is closed"

    def _end(self, why: Broken) -> None:
        if self.lost is None:
            self.lost = why
            for number in list(self._pending):
                self._fail_pending(number, Closed(0, why.why))
            if not self._ended.done():
                self._ended.set_result(None)
            self._on_lost(why)

    def _on_blocked(self, _: Any, frame: Any) -> None:
        self.blocked = str(frame.method.reason)[:200] or "no reason given"

    def _on_unblocked(self, *_: Any) -> None:
        self.blocked = None

    # Channels.

    async def channel(self) -> Any:
        """A new channel, open."""
        if self.lost is not None:
            raise ChannelClosed(Closed(0, self.lost.why))
        opened: asyncio.Future[Any] = self._loop.create_future()
        channel = self._connection.channel(on_open_callback=lambda new: _resolve(opened, new))
        channel.add_on_close_callback(self._on_channel_closed)
        await self._wait(channel, opened)
        return channel

    async def call(self, channel: Any, method: str, **arguments: Any) -> Any:
        """A call that the broker answers, or ChannelClosed."""
        answered: asyncio.Future[Any] = self._loop.create_future()
        if channel.is_closed or channel.is_closing or self.lost is not None:
            raise ChannelClosed(Closed(0, self._why()))
        getattr(channel, method)(callback=lambda frame: _resolve(answered, frame), **arguments)
        return await self._wait(channel, answered)

    def publish(self, channel: int, message: Outgoing) -> None:
        """Writes a message to a channel that is open. If it cannot be written, nothing of it is, and this raises."""
        self._connection.publish(channel, message)

    def consume(self, channel: Any, queue: str, take: Callable[[Delivery], None]) -> None:
        """Begin to receive from a queue. Deliveries do not go through pika, so its callback for them is none."""
        self._connection.deliver(channel.channel_number, take)
        channel.basic_consume(queue, lambda *_: None)

    async def close_channel(self, channel: Any) -> None:
        if channel.is_open and self.lost is None:
            ended: asyncio.Future[Any] = self._loop.create_future()
            channel.close()
            with contextlib.suppress(ChannelClosed):
                await self._wait(channel, ended)

    def hold_reading(self, is_held: bool) -> None:
        self._between.hold(is_held)

    async def _wait(self, channel: Any, future: asyncio.Future[Any]) -> Any:
        pending = self._pending.setdefault(channel.channel_number, set())
        pending.add(future)
        try:
            return await future
        finally:
            pending.discard(future)

    def _on_channel_closed(self, channel: Any, error: BaseException) -> None:
        self._connection.deliver(channel.channel_number, None)
        self._fail_pending(channel.channel_number, closed_by(error))

    def _fail_pending(self, number: int, closed: Closed) -> None:
        for each in self._pending.pop(number, set()):
            if not each.done():
                each.set_exception(ChannelClosed(closed))


def _resolve(future: asyncio.Future[Any], value: object) -> None:
    if not future.done():
        future.set_result(value)


def closed_by(error: BaseException) -> Closed:
    """What pika says about the end of a channel, without its own words."""
    if type(error).__name__ == "ChannelClosedByBroker":
        return Closed(int(getattr(error, "reply_code", 0)), str(getattr(error, "reply_text", ""))[:300])
    return Closed(0, "the channel was closed")


def _judged(error: BaseException, user: str) -> Broken:
    """Why a connection ended or could not be made: in our words, and whether that holds for every process."""
    root = _root(error)
    name = type(root).__name__
    code = int(getattr(root, "reply_code", 0) or 0)
    # Pika guesses, also when the line was cut; only the broker's own words count.
    if name.startswith("Probable"):
        found = re.search(r"\b(403|530)\b", str(root))
        code = int(found[1]) if found else 0
    if code == 403:
        local = " (RabbitMQ admits guest from its own host only)" if user == "guest" else ""
        return Broken(f"it refused the user {user!r} or the password: check both{local}", everyone=True)
    if code == 530:
        why = f"the virtual host does not exist, or the user {user!r} may not use it"
        return Broken(f"{why}: check the end of the URL, and the permissions", everyone=True)
    if isinstance(root, ssl.SSLError):
        why = getattr(root, "verify_message", None) or root.reason or "handshake failed"
        return Broken(f"no TLS connection: {why}")
    if name == "ConnectionBlockedTimeout":
        return Broken("it was blocked for too long", everyone=True)
    if isinstance(root, OSError):
        check = "the host" if isinstance(root, socket.gaierror) else "host and port, and that it is running"
        return Broken(f"no connection: {root.strerror or type(root).__name__}: check {check}")
    if code:
        return Broken(f"it closed the connection ({code} {str(getattr(root, 'reply_text', ''))[:200]})")
    return Broken("the connection was lost" + ("" if name == "StreamLostError" else f" ({name})"))


def _root(error: BaseException) -> BaseException:
    """pika wraps what went wrong in its own errors, several deep."""
    for _ in range(10):
        inner = getattr(error, "exceptions", None) or getattr(error, "exception", None)
        if inner is None and error.args and isinstance(error.args[-1], BaseException):
            inner = error.args[-1]
        if isinstance(inner, list | tuple):
            inner = inner[-1] if inner else None
        if not isinstance(inner, BaseException):
            break
        error = inner
    return error
