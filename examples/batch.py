"""A handler that takes many messages at once: one insert for all of them, and an answer for each.

Run it: python batch.py
"""

import asyncio

from holdfast import Dead, Holdfast

app = Holdfast("sqlite:///batch.db")
written: list[int] = []
calls: list[int] = []
all_written = asyncio.Event()


@app.handler("reading.taken", batch=50)
async def store_readings(readings: list[dict]) -> list[Dead | None]:
    calls.append(len(readings))
    written.extend(reading["value"] for reading in readings if reading["value"] >= 0)
    if len(written) == 200:
        all_written.set()
    # One answer for each, in the same order: None is done. A single None, or no answer, is for all of them.
    return [Dead("below zero") if reading["value"] < 0 else None for reading in readings]


async def main() -> None:
    values = [*range(200), -1]
    app.publish_many([app.message("reading.taken", {"value": value}) for value in values])
    async with app.running():
        await all_written.wait()
    print(f"{len(written)} readings written in {len(calls)} calls of at most {max(calls)}")
    assert sorted(written) == list(range(200))
    assert max(calls) <= 50
    assert len(calls) < 200


if __name__ == "__main__":
    asyncio.run(main())
