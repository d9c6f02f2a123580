"""Essays graded by another service: a request in the submission's transaction, a callback, a dead letter queue.

Run it: RABBITMQ_URL=amqp://guest:guest@localhost/ python grading.py
Without RABBITMQ_URL it uses a broker in memory and says so; that one has no dead letter queue of its own.
"""

import asyncio
import os
import sqlite3
from contextlib import closing

from holdfast import Context, Dead, DeadLetter, Holdfast, RetryPolicy
from holdfast.transports import DeadLetters, Exchange, MemoryBroker, Queue, RabbitMQ

URL = os.environ.get("RABBITMQ_URL")


def broker() -> RabbitMQ | MemoryBroker:
    """`vstep.exchange` with two queues; what a grader rejects goes to `grading.dlq`."""
    if URL:
        dead = DeadLetters("vstep.dlx", "grading.dlq")
        return RabbitMQ(
            URL,
            declare=[
                Exchange("vstep.exchange"),
                Queue("grading.request", {"vstep.exchange": ["grading.request"]}, dead_letters=dead),
                Queue("grading.callback", {"vstep.exchange": ["grading.callback"]}),
            ],
        )
    memory = MemoryBroker()
    for name in ("grading.request", "grading.callback"):
        memory.bind("vstep.exchange", name, queue=name)
    memory.declare("grading.dlq")
    return memory


# --- The main application: takes submissions, sends requests, hears the results ---------------------------------------

rabbit = broker()
vstep = Holdfast("sqlite:///vstep.db")
vstep.destination("grading", rabbit, types=["grading.request"], to="vstep.exchange", source="/vstep")


@vstep.on_dead_letter
def ticket(letter: DeadLetter) -> None:
    """What nobody could grade is reviewed by a person; `holdfast dead redrive` sends it again."""
    open_ticket("vstep.db", letter)


vstep.inbox("callbacks", rabbit, queue="grading.callback")
vstep.inbox("grading-dlq", rabbit, queue="grading.dlq", dead_letters=True)


@vstep.handler("grading.callback")
def completed(callback: dict, ctx: Context) -> None:
    with ctx.transaction(sqlite3.Connection) as db:
        db.execute(
            "update submission set status = 'graded', score = ? where id = ?",
            (callback["score"], callback["submission"]),
        )


def submit(id: str, text: str) -> None:
    """The submission and the request to grade it: both are committed, or neither."""
    with closing(sqlite3.connect("vstep.db")) as db:
        db.execute("insert into submission values (?, ?, 'waiting', null)", (id, text))
        request = {"submission": id, "text": text}
        vstep.publish("grading.request", request, subject=f"Submission/{id}", on=db)
        db.commit()


# --- The grading service ----------------------------------------------------------------------------------------------

grader = Holdfast("sqlite:///grader.db")
grader.inbox("requests", rabbit, queue="grading.request")
grader.destination("callbacks", rabbit, types=["grading.callback"], to="vstep.exchange", source="/grader")
calls: list[str] = []


@grader.handler("grading.request", retry=RetryPolicy(attempts_max=4, base=0.05, cap=300.0, jitter=0.2))
async def grade(request: dict, ctx: Context) -> None:
    calls.append(request["submission"])
    if request["text"] == "":
        raise Dead("an empty essay cannot be graded")  # no retry
    if "slow" in request["text"] and ctx.attempt < 3:
        raise TimeoutError("the language model does not answer")
    ctx.publish("grading.callback", {"submission": request["submission"], "score": len(request["text"]) % 10})


@grader.on_dead_letter
def review(letter: DeadLetter) -> None:
    open_ticket("grader.db", letter)


# --- A day with both --------------------------------------------------------------------------------------------------


def open_ticket(path: str, letter: DeadLetter) -> None:
    """Once for each dead letter, though a hook may be called twice."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("insert or ignore into ticket values (?, ?)", (str(letter.id), letter.error))
        db.commit()


def rows(path: str, query: str) -> list:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(query).fetchall()


def reject_one(url: str) -> None:
    """A grader that is not ours takes a request and rejects it: RabbitMQ puts it into `grading.dlq`."""
    import pika

    with closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
        channel = connection.channel()
        method = None
        while method is None:
            method, _, _ = channel.basic_get("grading.request")
        channel.basic_reject(method.delivery_tag, requeue=False)


async def until(done, seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not done():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def main() -> None:
    print("broker:", "RabbitMQ" if URL else "in memory (set RABBITMQ_URL for a real one)")
    tables = "create table ticket (id text primary key, why text)"
    for app, path in ((vstep, "vstep.db"), (grader, "grader.db")):
        app.migrate()
        rows(path, tables)
    rows("vstep.db", "create table submission (id text primary key, text text, status text, score integer)")

    async with vstep.running():
        if URL:
            submit("s0", "an essay that a grader of another team rejects")
            await until(lambda: not vstep.operations.messages.find())  # it is sent
            await asyncio.to_thread(reject_one, URL)
            await until(lambda: rows("vstep.db", "select 1 from ticket"))
        submit("s1", "an essay")
        submit("s2", "a slow essay")
        submit("s3", "")
        async with grader.running():
            await until(
                lambda: len(rows("vstep.db", "select 1 from submission where score is not null")) == 2
            )
            await until(lambda: rows("grader.db", "select 1 from ticket"))

    for id, status, score in rows("vstep.db", "select id, status, score from submission order by id"):
        print(f"submission {id}: {status}, score {score}")
    for path in ("vstep.db", "grader.db"):
        for (why,) in rows(path, "select why from ticket"):
            print(f"ticket of {path.removesuffix('.db')}: {why}")
    assert calls.count("s2") == 3, "two time-outs, then a grade"
    assert len(rows("vstep.db", "select 1 from ticket")) == (1 if URL else 0)


if __name__ == "__main__":
    asyncio.run(main())
