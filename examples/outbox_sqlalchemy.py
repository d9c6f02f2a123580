"""Publishing in the transaction of a SQLAlchemy session: the order and its message, both or neither.

Run it: python outbox_sqlalchemy.py
"""

import asyncio

from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from holdfast import Holdfast

app = Holdfast("sqlite:///outbox.db")
engine = create_engine("sqlite:///outbox.db")


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    total: Mapped[int]


receipts: asyncio.Queue[int] = asyncio.Queue()


@app.handler("order.placed")
async def send_receipt(order: dict) -> None:
    print("receipt for order", order["id"])
    await receipts.put(order["id"])


def place(order_id: int, total: int) -> None:
    with Session(engine) as session, session.begin():
        session.add(Order(id=order_id, total=total))
        app.publish("order.placed", {"id": order_id, "total": total}, on=session)
        if total < 0:
            raise ValueError("no such total")  # takes the message back, too


async def main() -> None:
    Base.metadata.create_all(engine)
    place(1, 100)
    try:
        place(2, -5)
    except ValueError as error:
        print("order 2 was rolled back:", error)
    place(3, 300)
    async with app.running():
        sent = [await receipts.get() for _ in range(2)]
    assert sorted(sent) == [1, 3]
    assert receipts.empty()


if __name__ == "__main__":
    asyncio.run(main())
