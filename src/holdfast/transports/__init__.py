"""Ways to message brokers: the contract of a transport (contract.py), and those that come with Holdfast."""

from __future__ import annotations

from .contract import (
    CONFIRMED,
    Broken,
    Confirmed,
    Connector,
    Fate,
    Incoming,
    Limits,
    Outgoing,
    Receiver,
    Rejected,
    Sender,
    SendingConnector,
    Sent,
    Source,
    TooLarge,
    Transport,
    TransportBroken,
    Unknown,
    Unroutable,
)
from .memory import Fault, MemoryBroker
from .rabbitmq import DeadLetters, Exchange, Queue, RabbitMQ
from .secrets import Secret

__all__ = [
    "CONFIRMED",
    "Broken",
    "Confirmed",
    "Connector",
    "DeadLetters",
    "Exchange",
    "Fate",
    "Fault",
    "Incoming",
    "Limits",
    "MemoryBroker",
    "Outgoing",
    "Queue",
    "RabbitMQ",
    "Receiver",
    "Rejected",
    "Secret",
    "Sender",
    "SendingConnector",
    "Sent",
    "Source",
    "TooLarge",
    "Transport",
    "TransportBroken",
    "Unknown",
    "Unroutable",
]
