------------------------------- MODULE Relay -------------------------------
(***************************************************************************)
(* Batch calls with whole runs: a relay sends the head of a stream and the  *)
(* messages behind it to a broker before the first one is confirmed, then   *)
(* settles the confirmed prefix and gives the rest back.                    *)
(*                                                                          *)
(* HeadQ is the engine, unchanged: leases may lapse at any instant, and a   *)
(* worker that has lost its lease goes on sending.  Here is added what the  *)
(* broker has stored (wire), and for each worker how much of its run it has *)
(* sent and how much of that was confirmed.  A connection may be cut at any *)
(* instant: what is sent afterwards is not stored, and no confirm comes.    *)
(* The broker may reject one message and store the next ones (a queue that  *)
(* is full for a moment): "reject" in Faults.                               *)
(***************************************************************************)
EXTENDS HeadQ

CONSTANTS Faults      \* of the broker: "reject"

VARIABLES
  wire,      \* what the broker has stored, in its order; the same message may stand in it several times
  sent,      \* of a worker's run: how many were written to the connection
  fate,      \* of those: "stored", "confirmed", "rejected" or "lost", in the order of the run
  cut        \* whether the worker's connection is gone

relay == <<wire, sent, fate, cut>>
all   == <<vars, relay>>

RInit == /\ Init /\ wire = << >> /\ sent = [w \in W |-> 0] /\ fate = [w \in W |-> << >>] /\ cut = [w \in W |-> FALSE]

At(w) == wpc[w] = "working" /\ wrun[w] # << >>
Send(w) ==
  /\ At(w) /\ sent[w] < Len(wrun[w])
  /\ LET m == wrun[w][sent[w] + 1] IN
     \/ /\ ~cut[w] /\ wire' = Append(wire, m) /\ fate' = [fate EXCEPT ![w] = Append(@, "stored")]
     \/ /\ ~cut[w] /\ "reject" \in Faults /\ wire' = wire /\ fate' = [fate EXCEPT ![w] = Append(@, "rejected")]
     \/ /\ cut[w] /\ wire' = wire /\ fate' = [fate EXCEPT ![w] = Append(@, "lost")]
  /\ sent' = [sent EXCEPT ![w] = @ + 1]
  /\ UNCHANGED <<vars, cut>>
\* Confirms come in any order.
Confirm(w) ==
  /\ At(w) /\ ~cut[w]
  /\ \E i \in 1..Len(fate[w]) : fate[w][i] = "stored" /\ fate' = [fate EXCEPT ![w][i] = "confirmed"]
  /\ UNCHANGED <<vars, wire, sent, cut>>
Cut(w) == /\ At(w) /\ ~cut[w] /\ cut' = [cut EXCEPT ![w] = TRUE] /\ UNCHANGED <<vars, wire, sent, fate>>

\* What may be settled as done: the confirmed prefix.
RECURSIVE Prefix(_)
Prefix(f) == IF f = << >> \/ f[1] # "confirmed" THEN 0 ELSE 1 + Prefix(Tail(f))
Confirmed(w) == IF Bug("unknown is sent") THEN sent[w]
                ELSE IF Bug("any confirm will do") /\ (\E i \in 1..Len(fate[w]) : fate[w][i] = "confirmed") THEN sent[w]
                ELSE Prefix(fate[w])
NewlyDone(w) == Cardinality({i \in 1..Len(wrun[w]) : st'[wrun[w][i]] = "done" /\ st[wrun[w][i]] # "done"})
\* A settlement is in keeping with what the broker said: done is confirmed.
Honest(w) == NewlyDone(w) <= Confirmed(w)
\* The engine moves, and what a relay knows of its run follows the run.
Engine ==
  /\ Next
  /\ \A w \in W : wrun'[w] # wrun[w] /\ wpc[w] \in {"working", "placed"} => Honest(w)
  /\ sent' = [w \in W |-> IF wrun'[w] = wrun[w] THEN sent[w] ELSE 0]
  /\ fate' = [w \in W |-> IF wrun'[w] = wrun[w] THEN fate[w] ELSE << >>]
  /\ cut'  = [w \in W |-> IF wrun'[w] = wrun[w] THEN cut[w] ELSE FALSE]
  /\ wire' = wire

RNext == Engine \/ \E w \in W : Send(w) \/ Confirm(w) \/ Cut(w)
RSpec == RInit /\ [][RNext]_all

--------------------------------------------------------------------------
OnWire(m) == \E i \in 1..Len(wire) : wire[i] = m
First1(m) == CHOOSE i \in 1..Len(wire) : wire[i] = m /\ \A j \in 1..(i - 1) : wire[j] # m
\* Done means that the broker has it: nothing is lost on the way.
DoneIsStored == \A m \in M : st[m] = "done" => OnWire(m)
\* A receiver that leaves out what it has seen gets the stream in its order.
WireInOrder == \A m, n \in M : (pos[m] > 0 /\ pos[n] > 0 /\ pos[m] < pos[n] /\ OnWire(n)) => (OnWire(m) /\ First1(m) < First1(n))
=============================================================================
