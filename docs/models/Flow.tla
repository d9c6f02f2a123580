-------------------------------- MODULE Flow --------------------------------
(***************************************************************************)
(* One instance of an orchestration on its stream.  Workers take runs of    *)
(* its messages under a lease that may lapse at any instant, read where it  *)
(* stands, run one turn from the journal or from what they have in memory,  *)
(* and store it: the end of the messages, the journal row, the next state,  *)
(* calls and timers, withdrawals, in one commit, fenced by the lease and by *)
(* (execution, turn).                                                       *)
(*                                                                          *)
(* The code: in each execution it asks for a call and a timer and waits for *)
(* the first of them; the other is withdrawn.  Then it waits for a signal   *)
(* and continues as new, at last it ends.  A cancellation ends it anywhere. *)
(* What the code does depends on the messages alone, so memory is a value.  *)
(*                                                                          *)
(* Guesses (speculative turns): a worker that ends an activity and has its  *)
(* instance in memory runs the next turn at once.  It is stored with the    *)
(* activity's end if nothing waits in the stream, nobody holds it, and the  *)
(* instance stands where memory says; else the answer alone is stored, as a *)
(* message.                                                                 *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS W, MaxExec, MaxSig, MaxLapse, RunMax, Cancels, Guesses, Bugs

Bug(b) == b \in Bugs
E == 0..MaxExec
None == [k |-> "none"]

Start     == [k |-> "start", n |-> 0]
Sig(n)    == [k |-> "sig", n |-> n]
Ans(e)    == [k |-> "ans", n |-> e]
Fire(e)   == [k |-> "fire", n |-> e]
Wake(e)   == [k |-> "wake", n |-> e]
CancelMsg == [k |-> "cancel", n |-> 0]

VARIABLES
  stream,    \* messages of the instance, in order
  db,        \* what is stored: execution, turn, the mark of who stored it, and what the journal says
  calls,     \* of each execution: "none", "open", "done" or "gone"
  timers,    \* the same: "none", "set", "fired" or "gone"
  lease,     \* who holds the head, and the epoch
  at,        \* of each worker: where it is in its turn
  cache,     \* of each worker: the instance as it has it in memory
  sent, cancelled, lapses, twice,
  overtook   \* a guess was stored before what waited in the stream

vars == <<stream, db, calls, timers, lease, at, cache, sent, cancelled, lapses, twice, overtook>>

New(e, box, taken) == [e |-> e, phase |-> "new", box |-> box, taken |-> taken, wrong |-> FALSE]
Idle == [pc |-> "idle"]

Init ==
  /\ stream = <<Start>>
  /\ db = [e |-> 0, t |-> 0, mark |-> 0, mem |-> New(0, << >>, << >>)]
  /\ calls = [e \in E |-> "none"] /\ timers = [e \in E |-> "none"]
  /\ lease = [by |-> None, epoch |-> 0]
  /\ at = [w \in W |-> Idle] /\ cache = [w \in W |-> None]
  /\ sent = 0 /\ cancelled = FALSE /\ lapses = 0 /\ twice = FALSE /\ overtook = FALSE

--------------------------------------------------------------------------
(* A turn as a function: what it makes of memory, and what it asks for.     *)
Plain(mem) == [mem |-> mem, ask |-> FALSE, noTimer |-> FALSE, noCall |-> FALSE, again |-> FALSE]
Began(mem) == [Plain([mem EXCEPT !.phase = "race"]) EXCEPT !.ask = TRUE]
\* The code has a signal to take: it takes it, and goes on.
Took(r) ==
  IF r.mem.phase # "signal" \/ r.mem.box = << >> THEN r
  ELSE LET taken == Append(r.mem.taken, Head(r.mem.box)) IN
       IF r.mem.e < MaxExec
       THEN [r EXCEPT !.mem = New(r.mem.e + 1, IF Bug("again drops the box") THEN << >> ELSE Tail(r.mem.box), taken),
                      !.again = TRUE]
       ELSE [r EXCEPT !.mem = [r.mem EXCEPT !.phase = "over", !.box = Tail(r.mem.box), !.taken = taken]]
Won(mem, m) == [mem EXCEPT !.phase = "signal", !.wrong = @ \/ m.n # mem.e]
One(mem, m) ==
  CASE m.k = "start" /\ mem.phase = "new" /\ mem.e = 0 -> Began(mem)
    [] m.k = "sig" /\ mem.phase # "over" -> Took(Plain([mem EXCEPT !.box = Append(@, m.n)]))
    [] m.k = "ans" /\ mem.phase = "race" /\ (m.n = mem.e \/ Bug("any answer will do")) ->
         Took([Plain(Won(mem, m)) EXCEPT !.noTimer = TRUE])
    [] m.k = "fire" /\ mem.phase = "race" /\ m.n = mem.e -> Took([Plain(Won(mem, m)) EXCEPT !.noCall = TRUE])
    [] m.k = "cancel" /\ mem.phase # "over" ->
         [Plain([mem EXCEPT !.phase = "over"]) EXCEPT !.noTimer = mem.phase = "race", !.noCall = mem.phase = "race"]
    [] OTHER -> Plain(mem)
\* What was asked for and is withdrawn in the same turn is neither stored nor withdrawn.
Joined(r, s) == [mem |-> s.mem, ask |-> r.ask \/ s.ask, noTimer |-> r.noTimer \/ s.noTimer, noCall |-> r.noCall \/ s.noCall,
                 again |-> s.again]
RECURSIVE Fold(_, _, _)
Fold(r, run, used) ==
  IF run = << >> \/ r.again THEN [r |-> r, used |-> used]
  ELSE Fold(Joined(r, One(r.mem, Head(run))), Tail(run), Append(used, Head(run)))
Play(mem, run) == Fold(IF mem.phase = "new" /\ mem.e > 0 THEN Began(mem) ELSE Plain(mem), run, << >>)

--------------------------------------------------------------------------
SeqSet(s) == {s[i] : i \in 1..Len(s)}
Without(s, gone) == SelectSeq(s, LAMBDA m : m \notin gone)

Claim(w) ==
  /\ at[w].pc = "idle" /\ lease.by = None /\ stream # << >>
  /\ \E k \in 1..RunMax :
       /\ k <= Len(stream)
       /\ at' = [at EXCEPT ![w] = [pc |-> "claimed", run |-> SubSeq(stream, 1, k), epoch |-> lease.epoch + 1]]
  /\ lease' = [by |-> w, epoch |-> lease.epoch + 1]
  /\ UNCHANGED <<stream, db, calls, timers, cache, sent, cancelled, lapses, twice, overtook>>
Lapse ==
  /\ lease.by # None /\ lapses < MaxLapse
  /\ lease' = [lease EXCEPT !.by = None] /\ lapses' = lapses + 1
  /\ UNCHANGED <<stream, db, calls, timers, at, cache, sent, cancelled, twice, overtook>>
Fresh(w) ==
  /\ cache[w] # None /\ cache[w].e = db.e /\ cache[w].t = db.t
  /\ (cache[w].mark = db.mark \/ Bug("no mark"))
Read(w) ==
  /\ at[w].pc = "claimed"
  /\ at' = [at EXCEPT ![w] = [pc |-> "ready", run |-> at[w].run, epoch |-> at[w].epoch, e |-> db.e, t |-> db.t,
                               mem |-> IF Fresh(w) THEN cache[w].mem ELSE db.mem]]
  /\ UNCHANGED <<stream, db, calls, timers, lease, cache, sent, cancelled, lapses, twice, overtook>>

Stands(w) == \/ Bug("no fence")
             \/ lease.by = w /\ lease.epoch = at[w].epoch /\ at[w].e = db.e /\ at[w].t = db.t
Settle(w) ==
  /\ at[w].pc = "ready"
  /\ LET p == Play(at[w].mem, at[w].run)
         r == p.r
         e == at[w].mem.e
         mark == at[w].epoch
         stored == [e |-> r.mem.e, t |-> IF r.again THEN 0 ELSE at[w].t + 1, mark |-> mark, mem |-> r.mem]
         ended == IF Bug("again ends the rest") THEN SeqSet(at[w].run) ELSE SeqSet(p.used)
     IN
     /\ at' = [at EXCEPT ![w] = Idle]
     /\ cache' = [cache EXCEPT ![w] = stored]  \* also if it is refused: the mark will tell
     /\ IF Stands(w) THEN
          /\ db' = stored
          /\ stream' = Without(stream, ended) \o IF r.again THEN <<Wake(r.mem.e)>> ELSE << >>
          /\ twice' = (twice \/ (r.ask /\ calls[e] # "none"))
          /\ \E left \in {"open", "gone"} :  \* a call that a worker runs is asked to stop, and may answer late
               calls' = [calls EXCEPT ![e] = IF r.ask THEN (IF r.noCall THEN "gone" ELSE "open")
                                             ELSE IF r.noCall /\ @ = "open" THEN left ELSE @]
          /\ timers' = [timers EXCEPT ![e] = IF r.ask THEN (IF r.noTimer THEN "gone" ELSE "set")
                                             ELSE IF r.noTimer /\ @ = "set" /\ ~Bug("timer stays") THEN "gone" ELSE @]
          /\ lease' = IF lease.by = w THEN [lease EXCEPT !.by = None] ELSE lease
        ELSE
          /\ stream' = IF Bug("refused in parts") THEN Without(stream, SeqSet(p.used)) ELSE stream
          /\ lease' = IF lease.by = w /\ lease.epoch = at[w].epoch THEN [lease EXCEPT !.by = None] ELSE lease
          /\ UNCHANGED <<db, calls, timers, twice>>
  /\ UNCHANGED <<sent, cancelled, lapses, overtook>>

Answer(e) ==
  /\ calls[e] = "open" /\ calls' = [calls EXCEPT ![e] = "done"] /\ stream' = Append(stream, Ans(e))
  /\ UNCHANGED <<db, timers, lease, at, cache, sent, cancelled, lapses, twice, overtook>>
FireTimer(e) ==
  /\ timers[e] = "set" /\ timers' = [timers EXCEPT ![e] = "fired"] /\ stream' = Append(stream, Fire(e))
  /\ UNCHANGED <<db, calls, lease, at, cache, sent, cancelled, lapses, twice, overtook>>
Signal ==
  /\ sent < MaxSig /\ db.mem.phase # "over"
  /\ sent' = sent + 1 /\ stream' = Append(stream, Sig(sent + 1))
  /\ UNCHANGED <<db, calls, timers, lease, at, cache, cancelled, lapses, twice, overtook>>
Cancel ==
  /\ Cancels /\ ~cancelled /\ db.mem.phase # "over"
  /\ cancelled' = TRUE /\ stream' = Append(stream, CancelMsg)
  /\ UNCHANGED <<db, calls, timers, lease, at, cache, sent, lapses, twice, overtook>>

\* The activity of this execution ends here, and its worker has the instance in memory: it runs the next turn.
Guess(w, e) ==
  /\ Guesses /\ at[w].pc = "idle" /\ calls[e] = "open"
  /\ cache[w] # None /\ cache[w].e = e /\ cache[w].mem.phase = "race"
  /\ at' = [at EXCEPT ![w] = [pc |-> "guess", e |-> e, t |-> cache[w].t, mark |-> cache[w].mark, mem |-> cache[w].mem]]
  /\ UNCHANGED <<stream, db, calls, timers, lease, cache, sent, cancelled, lapses, twice, overtook>>
Fits(w) == /\ db.e = at[w].e /\ (db.t = at[w].t \/ Bug("guess on old memory"))
           /\ (db.mark = at[w].mark \/ Bug("guess on old memory"))
           /\ (stream = << >> /\ lease.by = None) \/ Bug("guess overtakes")
Guessed(w) ==
  /\ at[w].pc = "guess"
  /\ LET e == at[w].e
         r == Play(at[w].mem, <<Ans(e)>>).r
         stored == [e |-> r.mem.e, t |-> IF r.again THEN 0 ELSE at[w].t + 1, mark |-> 1000 + at[w].t, mem |-> r.mem]
     IN
     /\ at' = [at EXCEPT ![w] = Idle]
     /\ IF calls[e] # "open" THEN  \* withdrawn meanwhile: its end says nothing
          /\ cache' = [cache EXCEPT ![w] = None]
          /\ UNCHANGED <<stream, db, calls, timers, overtook>>
        ELSE IF Fits(w) THEN
          /\ db' = stored /\ cache' = [cache EXCEPT ![w] = stored]
          /\ calls' = [calls EXCEPT ![e] = "done"]
          /\ timers' = [timers EXCEPT ![e] = IF @ = "set" THEN "gone" ELSE @]
          /\ stream' = stream \o IF r.again THEN <<Wake(r.mem.e)>> ELSE << >>
          /\ overtook' = (overtook \/ stream # << >>)
        ELSE
          /\ cache' = [cache EXCEPT ![w] = None]
          /\ calls' = [calls EXCEPT ![e] = "done"]
          /\ stream' = IF Bug("refused guess loses the answer") THEN stream ELSE Append(stream, Ans(e))
          /\ UNCHANGED <<db, timers, overtook>>
  /\ UNCHANGED <<lease, sent, cancelled, lapses, twice>>

Next == \/ Lapse \/ Signal \/ Cancel
        \/ \E w \in W : Claim(w) \/ Read(w) \/ Settle(w) \/ Guessed(w) \/ \E e \in E : Guess(w, e)
        \/ \E e \in E : Answer(e) \/ FireTimer(e)
Spec == Init /\ [][Next]_vars
Symmetry == Permutations(W)

--------------------------------------------------------------------------
mem == db.mem
InStream(m) == m \in SeqSet(stream)
Seen == mem.taken \o mem.box
\* A command is stored once, however often its turn was run.
CommandOnce == ~twice
\* A signal that was sent is in the stream, or the journal has it, until the instance ends; continue-as-new loses none.
SignalsKept == mem.phase # "over" => \A n \in 1..sent : InStream(Sig(n)) \/ n \in SeqSet(Seen)
\* The code gets each signal once, in the order in which they came.
SignalsInOrder == \A i \in 1..Len(Seen) : Seen[i] = i
\* Whoever waits for a call or a timer gets the one or the other; after continue-as-new something wakes it.
GoesOn == /\ mem.phase = "race" => \/ calls[mem.e] = "open" \/ timers[mem.e] = "set"
                                   \/ InStream(Ans(mem.e)) \/ InStream(Fire(mem.e))
          /\ mem.phase = "new" => stream # << >>
          /\ mem.phase = "signal" => mem.box = << >>
\* No answer reaches another execution than the one that asked.
RightAnswer == ~mem.wrong
\* What has ended, or is in another execution, leaves no timer behind.
TimersGone == \A e \in E : timers[e] = "set" => mem.phase = "race" /\ mem.e = e
\* Whoever waits for a call that has ended finds its answer.
AnswerKept == mem.phase = "race" /\ calls[mem.e] = "done" => InStream(Ans(mem.e))
\* What stands in the stream is seen before an answer that comes later.
InStreamOrder == ~overtook
=============================================================================
