"""Requests with deadlines: essays are graded by another system, which must answer in time. Late grades are kept.

The attempt, the request, its deadline and the message to the grader are stored in one transaction. The clock is moved
by hand here, so an hour passes in a moment.

Run it: python deadlines.py
"""

import sqlite3

from holdfast import Context, Holdfast, Request

app = Holdfast("sqlite:///deadlines.db")
grading = app.request_kind("grading", sla={"writing": 20 * 60, "speaking": 60 * 60}, soft=0.75)
SLOW = {"s-2", "s-3"}  # the grader takes too long for these

TABLES = """
    create table attempts (id text primary key, skill text, request text, status text, reason text, score real);
    create table progress (attempt text primary key, score real);
"""


def submit(db: sqlite3.Connection, attempt: str, skill: str) -> None:
    """One transaction of the main application: both are stored, or neither."""
    asked = app.request(
        grading, {"attempt": attempt}, variant=skill, send="grading.request", subject=attempt, on=db
    )
    db.execute(
        "insert into attempts values (?, ?, ?, 'PENDING', null, null)", (attempt, skill, str(asked.id))
    )


@app.handler("grading.request")
def grade(body: dict, ctx: Context) -> None:
    """The grader. Its result goes back in the transaction that ends the message."""
    if body["attempt"] in SLOW:
        print(f"{body['attempt']}: the grader is still at work")
        return
    with ctx.transaction(sqlite3.Connection) as db:
        answer = app.resolve(ctx.id, {"score": 7.5}, on=db)
    print(f"{body['attempt']}: answered, late={answer.late}")


@grading.completed
def graded(request: Request, ctx: Context) -> None:
    """Once for each request: for a grade in time, or a late one that somebody has accepted."""
    score = request.result["score"]
    with ctx.transaction(sqlite3.Connection) as db:
        db.execute(
            "update attempts set status = 'COMPLETED', reason = null, score = ? where id = ?",
            (score, request.subject),
        )
        db.execute("insert into progress values (?, ?)", (request.subject, score))


@grading.failed
def timed_out(request: Request, ctx: Context) -> None:
    with ctx.transaction(sqlite3.Connection) as db:
        db.execute(
            "update attempts set status = 'FAILED', reason = ? where id = ?",
            (request.reason, request.subject),
        )


@grading.delayed
def delayed(request: Request) -> None:
    print(f"{request.subject}: takes longer than usual, until {request.deadline:%H:%M} at the latest")


def page(db: sqlite3.Connection, attempt: str) -> str:
    """What a student sees. A late grade is shown in a banner, and counts for nothing until it is accepted."""
    request, status, reason, score = db.execute(
        "select request, status, reason, score from attempts where id = ?", (attempt,)
    ).fetchone()
    if status == "COMPLETED":
        return f"{attempt}: {score} points"
    if status == "PENDING":
        return f"{attempt}: being graded"
    shown = app.operations.requests.show(request)
    late = [each.body for each in shown.results if each.standing == "late"]
    return f"{attempt}: {status} ({reason})" + (f"  [late result, view only: {late[0]}]" if late else "")


def main() -> None:
    with app.testing() as t:
        path = app.url.removeprefix("sqlite:///")
        db = sqlite3.connect(path)
        db.executescript(TABLES)
        for attempt, skill in (("s-1", "writing"), ("s-2", "writing"), ("s-3", "speaking")):
            with db:
                submit(db, attempt, skill)
        t.drain()
        t.advance(minutes=20, seconds=1)  # writing has 20 minutes, speaking an hour
        t.drain()
        assert page(db, "s-1") == "s-1: 7.5 points"
        assert page(db, "s-2") == "s-2: FAILED (TIMEOUT)"
        assert page(db, "s-3") == "s-3: being graded"

        (request,) = db.execute("select request from attempts where id = 's-2'").fetchone()
        answer = app.resolve(request, {"score": 9.0})  # the callback comes at last
        print(f"s-2: answered, late={answer.late}")
        t.drain()
        print(page(db, "s-2"))
        assert page(db, "s-2") == 's-2: FAILED (TIMEOUT)  [late result, view only: {"score":9.0}]'
        assert db.execute("select attempt from progress").fetchall() == [("s-1",)]

        app.operations.by("teacher").requests.accept(request, why="the grader was slow, the student was not")
        t.drain()
        print(page(db, "s-2"))
        assert page(db, "s-2") == "s-2: 9.0 points"
        assert db.execute("select attempt from progress order by 1").fetchall() == [("s-1",), ("s-2",)]

        t.advance(minutes=26)  # three quarters of the hour have passed
        t.drain()
        t.advance(minutes=14)
        t.drain()
        print(page(db, "s-3"))
        assert page(db, "s-3") == "s-3: FAILED (TIMEOUT)"
        assert not t.dead
        db.close()


if __name__ == "__main__":
    main()
