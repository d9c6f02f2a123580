"""Makes messages of SQLite's rows of work, if they can be read."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec

from ...clock import micros
from ...model.message import Y2000, Message
from ...model.work import Leased, Unfit
from ..statement import Rows
from ..values import as_text
from .rows import ATTEMPTS, EPOCH, ID, POSITION, RUN, SEQ

AT_2000 = micros(Y2000)


COLUMNS = Message.__struct_fields__  # in the order of a row of work


def leased(rows: Rows) -> list[Leased]:
    try:
        return _leased_all(rows)
    except Exception:  # one of them has a wrong type: convert each by itself
        epochs = {row[SEQ]: row[EPOCH] for row in rows}
        return [each for row in rows for each in _leased_one(row, epochs[row[RUN]])]


def _leased_one(row: tuple[Any, ...], run_epoch: int) -> list[Leased]:
    """One row. If it cannot be read: the parts needed to settle it, and the reason."""
    try:
        # SQLite stores any type in any column.
        msgspec.convert(dict(zip(COLUMNS, row, strict=False)), Message)
        msgspec.convert(row[EPOCH], int)
        (found,) = _leased_all([(*row[:RUN], row[SEQ], *row[RUN + 1 :])])
        return [msgspec.structs.replace(found, run=row[RUN], run_epoch=run_epoch)]
    except Exception as error:
        why = str(error).replace("`$.", "column `").replace("_raw`", "_at`")
    try:
        id = UUID(as_text(row[ID]))
    except ValueError:
        id = UUID(int=row[SEQ])
    names = [None if row[n] is None else as_text(row[n]) for n in (2, 3, 4, 5, 7, 8)]
    queue, type, body, stream, subject, headers = names
    message = Message(
        row[SEQ], id, queue or "", type or "", body or "", stream, row[POSITION], subject, headers,
        0, 0, 0, 0, 0, 0, None, None,
    )  # fmt: skip
    return [Unfit(message, row[EPOCH], 0, row[RUN], run_epoch, why)]


def _leased_all(rows: Rows) -> list[Leased]:
    epochs = {row[SEQ]: row[EPOCH] for row in rows}
    ids = msgspec.convert([row[ID] for row in rows], list[UUID])  # ten times faster than one by one
    return [
        Leased(
            Message(
                row[0], id, row[2], row[3], row[4], row[5], row[6], row[7], row[8], row[9], row[10], row[11],
                row[12], row[13], row[14] - AT_2000, None if row[15] is None else row[15] - AT_2000,
                None if row[16] is None else row[16] - AT_2000,
            ),
            row[EPOCH],
            row[ATTEMPTS] + 1,
            row[RUN],
            epochs[row[RUN]],
        )
        for row, id in zip(rows, ids, strict=True)
    ]  # fmt: skip
