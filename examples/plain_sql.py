"""A producer without Holdfast: one INSERT, in any language that speaks SQL. It is routed and ordered by the database.

Run it: python plain_sql.py
"""

import asyncio
import sqlite3

from holdfast import Context, Holdfast

app = Holdfast("sqlite:///plain.db")
seen: asyncio.Queue[str] = asyncio.Queue()


@app.handler("stock.changed")
async def update_shelf(change: dict, ctx: Context) -> None:
    await seen.put(f"{ctx.stream}: {change['by']:+d}")


def producer() -> None:
    """On PostgreSQL the table is `holdfast.message`."""
    with sqlite3.connect("plain.db") as db:
        db.execute("create table if not exists stock (item text, change integer)")
        for change in (5, -2, -1):
            db.execute("insert into stock values ('apple', ?)", (change,))
            db.execute(
                "insert into holdfast_message (type, body, stream) values (?, json_object('by', ?), ?)",
                ("stock.changed", change, "apple"),
            )


async def main() -> None:
    app.prepare()  # makes the tables; the producer's database is usually there already
    producer()
    async with app.running():
        changes = [await seen.get() for _ in range(3)]
    print(*changes, sep="\n")
    assert changes == ["apple: +5", "apple: -2", "apple: -1"]


if __name__ == "__main__":
    asyncio.run(main())
