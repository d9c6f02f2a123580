"""A worker inside a web application: it works while the application runs, and ends with it.

FastAPI, Starlette and Litestar take such a function as `lifespan=`. There is no web server here; `main` enters the
lifespan as the framework would, and calls what would be an endpoint.
Run it: python lifespan.py
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast import Holdfast

holdfast = Holdfast("sqlite:///web.db")
mailed = asyncio.Event()


@holdfast.handler("user.registered", retry="api")
async def send_mail(user: dict) -> None:
    print("mail to", user["email"])
    mailed.set()


@asynccontextmanager
async def lifespan(_web: object) -> AsyncIterator[None]:
    async with holdfast.running():
        yield


async def register(email: str) -> dict:
    """What would be `@web.post("/users")`: it answers as soon as the message is stored."""
    published = await holdfast.apublish("user.registered", {"email": email}, dedupe=email)
    return {"accepted": not published.duplicate}


async def main() -> None:
    async with lifespan(None):
        first = await register("ada@example.org")
        second = await register("ada@example.org")
        print("first:", first, "second:", second)
        await mailed.wait()
    assert first == {"accepted": True}
    assert second == {"accepted": False}


if __name__ == "__main__":
    asyncio.run(main())
