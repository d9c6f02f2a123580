"""Flask with SQLAlchemy: a request stores an order and its message in one transaction; a worker handles it later.

The web server and the worker are two programs in real life: `flask run`, and `holdfast worker flask_shop:jobs`. Here
both run in one, so that the example ends by itself.
Run it: python flask_shop.py
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from flask import Flask, request
from sqlalchemy import create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

from holdfast import Holdfast

URL = "sqlite:///flask_shop.db"
web = Flask(__name__)
jobs = Holdfast(URL, require_on=True)  # a publish without on= is a mistake in this service
sessions = scoped_session(sessionmaker(create_engine(URL)))  # one session for each thread


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]
    state: Mapped[str] = mapped_column(default="placed")


@web.post("/orders")
def place() -> tuple[dict[str, int], int]:
    session = sessions()
    with session.begin():
        order = Order(item=request.json["item"])
        session.add(order)
        session.flush()  # gives it its id
        jobs.publish("order.placed", {"id": order.id}, on=session)
        return {"id": order.id}, 202


@web.teardown_appcontext
def close_session(_error: BaseException | None) -> None:
    sessions.remove()


@jobs.around_call
@contextmanager
def session_of_the_call() -> Iterator[None]:
    """A handler's thread lives as long as its worker. Its session does not: each call has a new one."""
    try:
        yield
    finally:
        sessions.remove()


@jobs.handler("order.placed", name="ship_order")
def ship(order: dict) -> None:
    session = sessions()
    with session.begin():
        session.get_one(Order, order["id"]).state = "shipped"


def main() -> None:
    Base.metadata.create_all(sessions.get_bind())
    client = web.test_client()
    answers = [client.post("/orders", json={"item": item}) for item in ("book", "lamp")]
    print("placed:", [answer.get_json() for answer in answers])
    asyncio.run(jobs.worker(until_idle=True).run())
    with Session(sessions.get_bind()) as session:
        found = {order.item: order.state for order in session.scalars(select(Order))}
    print("now:", found)
    assert [answer.status_code for answer in answers] == [202, 202]
    assert found == {"book": "shipped", "lamp": "shipped"}


if __name__ == "__main__":
    main()
