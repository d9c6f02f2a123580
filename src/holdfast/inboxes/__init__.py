"""The inbox: what a broker has for this application is stored, committed, and only then acknowledged.

    app.inbox("billing", rabbit, queue="shop.billing", bind={"shop.events": ["order.*"]}, stream="{subject}")

A message is stored under an id made of its sender's source and id, which are its dedupe key too, so that what the
broker delivers again is stored once. From then on it is a message like any other: handlers subscribe to its type. What
cannot be read is a dead letter with its bytes; a redrive reads it again. `reading` makes messages of what arrives,
`intake` runs in every worker process.
"""

from .answers import received
from .declared import Inbox, InboxOptions, declared
from .intake import Intake
from .reading import INBOX, SENDER_ID, SOURCE, Reader
from .returns import returning

__all__ = [
    "INBOX",
    "SENDER_ID",
    "SOURCE",
    "Inbox",
    "InboxOptions",
    "Intake",
    "Reader",
    "declared",
    "received",
    "returning",
]
