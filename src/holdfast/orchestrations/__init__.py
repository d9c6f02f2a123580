"""Orchestrations (durable workflows): functions that survive restarts by replay.

The modules, from the top: `declared` (what users declare and call) and `flow` (what their code is given); `code` (the
running code of one instance) on `loop` (its event loop), with `refusals`, `budget` and `signals`; `replay` (commands
compared with the journal); `turn` (one instance: journal and arrivals in, row and commands out); `journal`,
`outcome`, `failures` (values); `cache` (live instances) and `hosting` (turns inside a running asyncio loop). All of
these know no store. The engine on top of them: `declaring`, `turns`, `inline`, `activities`, `early`, `messages`,
`outside`.

**What an engine hands in**, for one run of messages of one instance (a run is a turn):

- `Instance(program, id, execution, limits=, budget=)`, from the `Cache` if it stands at the stored (execution, turn),
  else a new one: `instance.load(rows, size)` with all rows of this execution in the order (turn, part), `size` being
  the bytes of their texts. `JournalUnreadable` from `journal.decode` or `load` is poison of its own kind.
- `arrivals`: one value for each message of the run, in the order of the stream, each with `message` (the message's
  id, as text) and `at` (microseconds: when the message was stored; for a timer, when it was due). `flow.now` is the
  highest `at` so far, so it does not depend on when the turn runs. `Answered` and `Fired` carry the execution and
  number of the command they answer. `Started.seed` is `f"{id}/{execution}"` for a new instance. `Woken` is the
  message that only wakes.
- `now`: the database's time, written to the row and seen by nobody.
- `await hosting.run_turn(instance, arrivals, now, clock)` in a worker; `play(...)` is the same as one pure function.

**What it gets back**:

- `Turn`: all of it is one settlement, in one commit, or nothing. `row.key` is (id, execution, turn, part); `text` is
  what is stored. **The fence**: the stored (execution, turn) of the instance must be (row.execution, row.turn - 1),
  or for a part > 0 the row of the part before must be there. If the fence or a lease does not hold, nothing is
  stored, the whole run is given back, and the instance is dropped from the cache.
    - `row.consumed` names the messages that end with it; `duplicates` name messages that an earlier part consumed
      before a crash: they end, too. `row.late` (part of `consumed`) never reached the code: count them.
    - `asks`: one message each, with the id `ask.message_id(id, execution)`. `Call`: the activity's queue, body
      `ask.input`, `reply_to` = (queue, id, execution, number). `Timer`: due at `command.due`, into the stream as
      `Fired`. `Child`: a start of `command.name` (`name@version`) with `command.id`, whose end is an `Answered` here.
      `Start`: the same, unanswered. `ask.options` say how (retry, timeout, queue, deadline, inline) and are not in
      the journal.
    - `withdrawn`: numbers of earlier asks of this execution: cancel their messages if they wait, stop their calls
      if they run, cancel the child. What still answers is late.
    - `status`: JSON to store with the instance, if not None.
    - `end`: `completed` with `result`, `failed` with `failure`, `cancelled`, or `continued` with `end.begin`: row 0
      of the next execution, to be stored in the same commit with a message `Woken` into the same stream. `unread` are
      messages behind a continue-as-new: do not settle them (or play on at once with an Instance of the next
      execution).
    - `entries` and `size`: for the limits on history. `swallowed`: cancellations that the code ignored. `used_once`:
      a turn that ran a side effect must not be a guess.
- `CodeChanged`: the code asks for something else than the journal has. Give the run back without counting the attempt,
  pause the instance with `str(changed)` and `changed.diff`; after a fix the same run is tried again.
- `Overrun`: the code ran too long or in circles. Nothing is stored, the attempt counts (poison after the last one).

After a Turn is stored: `cache.put(instance)`. After anything else, or a lost lease: `instance.close()`. An instance
must always end in one of the two, never in the garbage collector.

**Inline activities** (`inline`, `inline_calls`, `parts`): after `instance.take(arrivals)`, `instance.inline()` are
the calls to run now. Their ends are handed in as `Answered("", at, execution, number, ...)`, in the order in which they
came, or as `instance.park(Tried(...))` for a later attempt. `instance.part(now, final=False)` is a row to be stored
before the next one starts (`inline=True`); with `inline="turn"` all goes into the last one. Only the last part, which
is final, has the asks, withdrawals and timers of the whole turn: an instance that is loaded with parts of a turn that
was not settled collects them again.

**Signals before the start** are ordinary arrivals: they are kept for the code until `Started` comes.
"""

from .budget import Alarm, Budget, Unlimited, Watchdog
from .cache import Cache
from .declared import Activity, Orchestration, Program, activity, orchestration
from .failures import ActivityFailed, CallFailed, Failure, OrchestrationFailed, UndoFailed, describe
from .flow import First, Flow
from .host import Options
from .journal import JournalUnreadable, Row
from .outcome import Ask, End, Overrun, Turn, Waits
from .refusals import REFUSALS, Refusal, advice
from .replay import CodeChanged
from .turn import Instance, play

__all__ = [
    "REFUSALS",
    "Activity",
    "ActivityFailed",
    "Alarm",
    "Ask",
    "Budget",
    "Cache",
    "CallFailed",
    "CodeChanged",
    "End",
    "Failure",
    "First",
    "Flow",
    "Instance",
    "JournalUnreadable",
    "Options",
    "Orchestration",
    "OrchestrationFailed",
    "Overrun",
    "Program",
    "Refusal",
    "Row",
    "Turn",
    "UndoFailed",
    "Unlimited",
    "Waits",
    "Watchdog",
    "activity",
    "advice",
    "describe",
    "orchestration",
    "play",
]
