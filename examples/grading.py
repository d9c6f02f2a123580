"""Essays graded by another service: requests with deadlines, a callback, a late one, a dead letter queue.

A submission, the request to grade it and its deadline are stored in one transaction. A grade that comes too late is
shown, and counts for nothing until a teacher accepts it.

Run it: RABBITMQ_URL=amqp://guest:guest@localhost/ python grading.py
Without RABBITMQ_URL it uses a broker in memory and says so; that one has no dead letter queue of its own.
"""

import asyncio
import os
import sqlite3
from contextlib import closing
from uuid import uuid4

from holdfast import Context, Dead, DeadLetter, Holdfast, Request, RetryPolicy
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
grading = vstep.request_kind("grading", sla={"writing": 20 * 60, "speaking": 60 * 60})


@vstep.on_dead_letter
def ticket(letter: DeadLetter) -> None:
    """What nobody could grade is reviewed by a person; `holdfast dead redrive` sends it again."""
    open_ticket("vstep.db", letter)


vstep.inbox("callbacks", rabbit, queue="grading.callback", resolves=grading)
vstep.inbox("grading-dlq", rabbit, queue="grading.dlq", dead_letters=True)


def submit(id: str, text: str, within: float | None = None) -> None:
    """The submission, the request to grade it and the message to the grader: all are committed, or nothing."""
    request = uuid4()
    body = {"request": str(request), "text": text}
    with closing(sqlite3.connect("vstep.db")) as db:
        db.execute("insert into submission values (?, ?, ?, 'waiting', null)", (id, text, str(request)))
        vstep.request(
            grading,
            body,
            variant="writing",
            within=within,
            send="grading.request",
            subject=id,
            id=request,
            on=db,
        )
        db.commit()


@grading.completed
def completed(request: Request, ctx: Context) -> None:
    """Once for each request: for a grade in time, or a late one that somebody has accepted."""
    with ctx.transaction(sqlite3.Connection) as db:
        score = request.result["score"]
        db.execute(
            "update submission set status = 'graded', score = ? where id = ?", (score, request.subject)
        )


@grading.failed
def failed(request: Request, ctx: Context) -> None:
    with ctx.transaction(sqlite3.Connection) as db:
        db.execute("update submission set status = ? where id = ?", (request.reason, request.subject))


def page(id: str) -> str:
    """What a student sees. A late grade is a banner."""
    ((request, status, score),) = rows(
        "vstep.db", f"select request, status, score from submission where id = '{id}'"
    )
    late = [each.body for each in vstep.operations.requests.show(request).results if each.standing == "late"]
    banner = f" [late result, view only: {late[0]}]" if late and score is None else ""
    return f"submission {id}: {status}, score {score}{banner}"


# --- The grading service ----------------------------------------------------------------------------------------------

grader = Holdfast("sqlite:///grader.db")
grader.inbox("requests", rabbit, queue="grading.request")
grader.destination("callbacks", rabbit, types=["grading.callback"], to="vstep.exchange", source="/grader")
calls: list[str] = []


@grader.handler("grading.request", retry=RetryPolicy(attempts_max=4, base=0.05, cap=300.0, jitter=0.2))
async def grade(request: dict, ctx: Context) -> None:
    calls.append(request["text"])
    if request["text"] == "":
        raise Dead("an empty essay cannot be graded")  # no retry
    if "slow" in request["text"] and ctx.attempt < 3:
        raise TimeoutError("the language model does not answer")
    if "long" in request["text"]:
        await asyncio.sleep(2)
    text = request["text"]
    ctx.publish("grading.callback", {"request": request["request"], "score": len(text) % 10})


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
    columns = "id text primary key, text text, request text, status text, score integer"
    rows("vstep.db", f"create table submission ({columns})")

    async with vstep.running():
        if URL:
            submit("s0", "an essay that a grader of another team rejects")
            await until(lambda: not vstep.operations.messages.find())  # it is sent
            await asyncio.to_thread(reject_one, URL)
            await until(lambda: rows("vstep.db", "select 1 from ticket"))
        submit("s1", "an essay")
        submit("s2", "a slow essay")
        submit("s3", "")
        submit("s4", "a long essay", within=1.0)  # the grader needs two seconds for it
        async with grader.running():
            await until(
                lambda: len(rows("vstep.db", "select 1 from submission where score is not null")) == 2
            )
            await until(lambda: rows("grader.db", "select 1 from ticket"))
            await until(lambda: "TIMEOUT" in page("s4") and "late result" in page("s4"))
        print(page("s4"))
        ((late,),) = rows("vstep.db", "select request from submission where id = 's4'")
        vstep.operations.by("teacher").requests.accept(late, why="the grader was slow, the student was not")
        await until(lambda: page("s4").startswith("submission s4: graded"))

    for (id,) in rows("vstep.db", "select id from submission order by id"):
        print(page(id))
    for path in ("vstep.db", "grader.db"):
        for (why,) in rows(path, "select why from ticket"):
            print(f"ticket of {path.removesuffix('.db')}: {why}")
    assert calls.count("a slow essay") == 3, "two time-outs, then a grade"
    assert len(rows("vstep.db", "select 1 from ticket")) == (1 if URL else 0)


if __name__ == "__main__":
    asyncio.run(main())
