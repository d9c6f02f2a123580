"""The tests that every transport must pass, for those who write one:

    class TestMine(TransportConformance):
        abilities = frozenset({"cut"})

        def setting(self, name):
            return Setting(MyConnector(...), to=..., key=..., queue=..., nowhere=..., everything=..., missing=...)

        async def cut(self):
            ...

They need pytest and no plugin of it. A transport that only sends takes `SendingConformance`; it still needs a connector
with a receiver, by which the tests look at what has arrived.
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(f"{__name__}.setting", f"{__name__}.sending", f"{__name__}.receiving")

from .receiving import ReceivingConformance  # noqa: E402 - after the line above
from .sending import SendingConformance  # noqa: E402
from .setting import Setting  # noqa: E402

__all__ = ["ReceivingConformance", "SendingConformance", "Setting", "TransportConformance"]


class TransportConformance(SendingConformance, ReceivingConformance):
    """All of them."""
