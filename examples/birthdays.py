"""Greetings on birthdays, in the time zone of each user, and a day in which nobody worked.

Users register in a transaction that also sets their schedule. On a birthday a service of somebody else is called, with
an idempotency key, so that it can recognise a second call. Then nobody works for a day. What was missed is sent, oldest
first; each greeting arrives once; the outage is summed up.

Run it: python birthdays.py. The clock is moved by hand (`app.testing`), so it takes seconds.
"""

import json
import logging
import sqlite3
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

from holdfast import Context, Holdfast, yearly

# Warnings say which messages are late, and that one call failed.
logging.getLogger("holdfast").setLevel("ERROR")
app = Holdfast("sqlite:///birthdays.db")

USERS = [  # id, first and last name, born, zone
    (1, "Ada", "Lovelace", "1990-03-14", "Europe/London"),
    (2, "Yukihiro", "Matsumoto", "1985-03-15", "Asia/Tokyo"),
    (3, "Grace", "Hopper", "1988-03-15", "America/New_York"),
    (4, "Linus", "Torvalds", "1992-03-15", "Europe/Helsinki"),
    (5, "Radia", "Perlman", "1979-03-15", "America/Los_Angeles"),
    (6, "Anita", "Borg", "1983-03-16", "Pacific/Auckland"),  # 09:00 there is still the 15th in most places
    (7, "Leap", "Day", "1992-02-29", "Europe/Berlin"),  # on 28 February in other years
    (8, "Tim", "Berners-Lee", "1995-06-08", "Europe/London"),
]


class Receiver(BaseHTTPRequestHandler):
    """The service of somebody else. It keeps each greeting once: by its key it knows that it has it already."""

    calls = 0
    greetings: ClassVar[dict[str, str]] = {}

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Receiver.calls += 1
        Receiver.greetings.setdefault(self.headers["Idempotency-Key"], body["message"])
        # It has the greeting, but one answer is lost: the caller cannot know, and calls again.
        self.send_response(503 if Receiver.calls == 3 else 200)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


server = HTTPServer(("127.0.0.1", 0), Receiver)


@app.handler("birthday.due", name="greet", retry="brisk", concurrency=1)
def greet(user: dict, ctx: Context) -> None:
    message = f"Hey, {user['first']} {user['last']} it's your birthday"
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.server_port}/greetings",
        json.dumps({"eventId": str(ctx.id), "message": message}).encode(),
        {"Content-Type": "application/json", "Idempotency-Key": ctx.idempotency_key},
    )
    with urllib.request.urlopen(request, timeout=5):
        late = "on time" if ctx.lateness.total_seconds() < 1 else f"{ctx.lateness} late"
        print(f"  {message} ({ctx.occurrence.local}, {late})")


def register(database: str) -> None:
    """The user's row and the schedule are one transaction. A greeting is never left out, however late it is."""
    with sqlite3.connect(database) as db:
        db.execute("create table users (id integer primary key, first text, last text, born text, zone text)")
        for id, first, last, born, zone in USERS:
            db.execute("insert into users values (?, ?, ?, ?, ?)", (id, first, last, born, zone))
            rule = yearly(born, "09:00", zone=zone, feb29="feb28")
            body = {"first": first, "last": last}
            app.set_schedule(
                f"birthday/{id}",
                rule,
                "birthday.due",
                body,
                subject=f"user-{id}",
                misfire="all",
                cap=None,
                on=db,
            )


def main() -> None:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with app.testing(at="2027-03-14 08:00 Europe/London") as t:
        app.prepare()
        register(app.url.removeprefix("sqlite:///"))
        t.drain()
        print("14 March:")
        t.advance(hours=1)
        t.drain()
        assert len(Receiver.greetings) == 1
        print("A day without workers. Then:")
        t.advance(days=1, hours=16)
        t.drain(raises=False)  # one fails: its answer was lost
        t.advance(seconds=30)
        t.drain()  # it is tried again
        app.operations.outages.end()

        (outage,) = app.operations.outages.list()
        print(
            f"Outage {outage.number}: no worker ran since {outage.down_since:%d %B %H:%M} UTC, {outage.handled} "
            f"greetings were late, by {outage.late_mean / 3600:.1f} hours on average and "
            f"{outage.late_max / 3600:.1f} at most."
        )
        print(f"The receiver was called {Receiver.calls} times and has {len(Receiver.greetings)} greetings.")
        again = app.operations.schedules.show("birthday/1").state.next_key
        print(f"Ada is greeted again on {again}.")
        assert len(set(Receiver.greetings.values())) == len(Receiver.greetings) == 6, Receiver.greetings
        assert Receiver.calls == 7  # one was called twice, with the same key
        assert outage.handled == 5
    server.shutdown()


if __name__ == "__main__":
    main()
