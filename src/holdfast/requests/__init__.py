"""Requests with deadlines: something that another system must answer in time, or it has failed.

    grading = app.request_kind("grading", sla={"writing": 1200, "speaking": 3600}, soft=0.75)
    asked = app.request(grading, {"submission": 17}, variant="writing", send="grading.request", on=db)
    app.resolve(asked.id, {"score": 7.5}, on=db)

`kinds` is what users declare and get, `verbs` are the transactions, with the decisions of `rules/deadline.py` in them,
`hooks` calls the application back, `outside` is what an application calls.
"""

from .kinds import Answer, Asked, Request, RequestKind, Resolved
from .outside import Requests

__all__ = ["Answer", "Asked", "Request", "RequestKind", "Requests", "Resolved"]
