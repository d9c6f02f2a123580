"""What the supervisor's children load: the same application, held at the gate so that they begin together."""

from bench.adapters import contest
from bench.adapters.holdfast import app as app

contest.gate()
