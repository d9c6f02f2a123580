"""FastAPI with async SQLAlchemy: a request stores an order and its message in one transaction, a worker ships it.

The worker runs inside the web application (`lifespan`); with `holdfast worker fastapi_shop:jobs` it is a process of
its own, and the lifespan goes. There is no web server here: `main` sends the requests itself.
Run it: python fastapi_shop.py
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from fastapi import Depends, FastAPI, Response
from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from holdfast import Holdfast

# PostgreSQL: postgresql+asyncpg://... for SQLAlchemy, and postgresql://... for Holdfast.
engine = create_async_engine("sqlite+aiosqlite:///fastapi_shop.db")
sessions = async_sessionmaker(engine, expire_on_commit=False)
jobs = Holdfast("sqlite:///fastapi_shop.db")
shipped: asyncio.Queue[int] = asyncio.Queue()


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]
    state: Mapped[str] = mapped_column(default="placed")


@jobs.handler("order.placed", name="ship_order", retry="api")
async def ship(order: dict) -> None:
    async with sessions.begin() as session:
        await session.execute(update(Order).where(Order.id == order["id"]).values(state="shipped"))
    await shipped.put(order["id"])


@asynccontextmanager
async def lifespan(_web: FastAPI) -> AsyncIterator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with jobs.running() as running:
        web.state.worker = running
        yield
    await engine.dispose()


web = FastAPI(lifespan=lifespan)


async def session() -> AsyncIterator[AsyncSession]:
    async with sessions.begin() as session:
        yield session


@web.post("/orders", status_code=202)
async def place(item: str, session: AsyncSession = Depends(session, scope="function")) -> dict[str, int]:  # noqa: B008
    order = Order(item=item)
    session.add(order)
    await session.flush()  # gives it its id
    await jobs.apublish("order.placed", {"id": order.id}, on=session)
    return {"id": order.id}  # both are committed before the answer is sent (scope="function")


@web.get("/ready")
async def ready(response: Response) -> dict[str, str]:
    """For a readiness probe: not ready while the worker waits for its database."""
    health = web.state.worker.health
    response.status_code = 200 if health.is_ready else 503
    return {"worker": health.state}


async def main() -> None:
    transport = httpx.ASGITransport(web)
    async with lifespan(web), httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        answers = [await client.post("/orders", params={"item": item}) for item in ("book", "lamp")]
        print("placed:", [answer.json() for answer in answers])
        handled = [await shipped.get() for _ in answers]
        print("ready:", (await client.get("/ready")).json())
        async with sessions() as session:
            found = {order.item: order.state for order in await session.scalars(select(Order))}
    print("now:", found)
    assert sorted(handled) == sorted(answer.json()["id"] for answer in answers)
    assert found == {"book": "shipped", "lamp": "shipped"}


if __name__ == "__main__":
    asyncio.run(main())
