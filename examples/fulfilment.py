"""An order as a durable workflow: payment, approval by a person, parcels in parallel; undone if it fails.

Run it: python fulfilment.py
"""

import asyncio

from holdfast import Dead, Flow, Holdfast, OrchestrationFailed

app = Holdfast("sqlite:///fulfilment.db")
log: list[str] = []


@app.activity(retry="api")
async def charge(cents: int) -> str:
    log.append(f"charge {cents}")
    return f"receipt-{cents}"


@app.activity(retry="api")
async def refund(receipt: str) -> None:
    log.append(f"refund {receipt}")


@app.activity()
async def send(parcel: str) -> str:
    if parcel == "lost":
        raise Dead("no such parcel")
    log.append(f"send {parcel}")
    return f"track-{parcel}"


@app.orchestration(version="1")
async def fulfil(order: dict, flow: Flow) -> list[str]:
    async with flow.saga() as undo:
        receipt = await charge(order["cents"])
        undo(refund, receipt)  # if anything below fails, or the order is cancelled
        if order["cents"] > 100_00:
            flow.status = "waits for approval"
            async with asyncio.timeout(3 * 86_400):  # a timer in the database
                who = await flow.signal("approved", str)
            flow.status = f"approved by {who}"
        return list(await asyncio.gather(*(send(parcel) for parcel in order["parcels"])))


async def main() -> None:
    orders = app.orchestrations
    async with app.running():
        small = await orders.astart(fulfil, {"cents": 4200, "parcels": ["a", "b"]})
        print("sent:", await orders.aresult(small, timeout=20))

        large = await orders.astart(fulfil, {"cents": 50_000, "parcels": ["c"]})
        await orders.asignal(large, "approved", "Ann")
        print("sent:", await orders.aresult(large, timeout=20))

        broken = await orders.astart(fulfil, {"cents": 700, "parcels": ["lost"]})
        try:
            await orders.aresult(broken, timeout=20)
        except OrchestrationFailed as error:
            print("failed:", error)
    print(log)
    assert log.count("charge 700") == log.count("refund receipt-700") == 1
    assert orders.status(large).status == "approved by Ann"


asyncio.run(main())
