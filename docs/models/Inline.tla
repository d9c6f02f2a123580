------------------------------- MODULE Inline -------------------------------
(***************************************************************************)
(* Inline activities: one turn of one instance that runs K of them, one     *)
(* after the other, each result in the journal before the next one starts.  *)
(* Workers hold the run under a lease that may lapse at any instant, and    *)
(* who lost it goes on.  A part of the turn is stored under the lease and   *)
(* at its place: (execution, turn, part).  The last result is stored with   *)
(* the turn's settlement, which also sends what the code has asked for on   *)
(* the way (here: one call, asked for when the first result came).          *)
(* A worker may have the instance in memory from before this turn.          *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS W, K, MaxLapse, Bugs

Bug(b) == b \in Bugs
None == [k |-> "none"]
Idle == [pc |-> "idle"]

VARIABLES
  journal,   \* the parts of this turn that are stored: which step, and what came out of it
  over,      \* the turn is settled
  sent,      \* the calls that were stored with it
  lease,     \* who holds the run, and the epoch
  at,        \* of each worker: where it is
  cached,    \* of each worker: whether it has the instance in memory as it was before this turn
  starts,    \* how often an activity was started, all steps together
  fed,       \* what the code had received when it asked for the activities that were started
  lapses, nonce

vars == <<journal, over, sent, lease, at, cached, starts, fed, lapses, nonce>>

Init ==
  /\ journal = << >> /\ over = FALSE /\ sent = {}
  /\ lease = [by |-> None, epoch |-> 0]
  /\ at = [w \in W |-> Idle] /\ cached = [w \in W |-> TRUE]
  /\ starts = 0 /\ fed = {} /\ lapses = 0 /\ nonce = 0

Asked(mem) == IF Len(mem) > 0 THEN {"call"} ELSE {}  \* by code that has received these results

Claim(w) ==
  /\ at[w].pc = "idle" /\ lease.by = None /\ ~over
  /\ at' = [at EXCEPT ![w] = [pc |-> "claimed", epoch |-> lease.epoch + 1]]
  /\ lease' = [by |-> w, epoch |-> lease.epoch + 1]
  /\ UNCHANGED <<journal, over, sent, cached, starts, fed, lapses, nonce>>
Lapse ==
  /\ lease.by # None /\ lapses < MaxLapse
  /\ lease' = [lease EXCEPT !.by = None] /\ lapses' = lapses + 1
  /\ UNCHANGED <<journal, over, sent, at, cached, starts, fed, nonce>>
\* A process dies: what it has in memory is gone. Its lease lapses.
Die(w) ==
  /\ at[w].pc # "idle" /\ lease.by = w /\ lapses < MaxLapse
  /\ lease' = [lease EXCEPT !.by = None] /\ lapses' = lapses + 1
  /\ at' = [at EXCEPT ![w] = Idle] /\ cached' = [cached EXCEPT ![w] = FALSE]
  /\ UNCHANGED <<journal, over, sent, starts, fed, nonce>>
\* Parts can be stored only if the head of the run was handed out before: its epoch tells that memory is not enough.
Read(w) ==
  /\ at[w].pc = "claimed"
  /\ LET warm == cached[w] /\ (at[w].epoch = 1 \/ Bug("memory is enough"))
         mem == IF warm THEN << >> ELSE journal
     IN at' = [at EXCEPT ![w] = [pc |-> "ready", epoch |-> at[w].epoch, mem |-> mem, saved |-> Len(mem),
                                  asks |-> IF Bug("parts lose their asks") THEN {} ELSE Asked(mem)]]
  /\ cached' = [cached EXCEPT ![w] = FALSE]
  /\ UNCHANGED <<journal, over, sent, lease, starts, fed, lapses, nonce>>
Start(w) ==
  /\ at[w].pc = "ready" /\ Len(at[w].mem) < K
  /\ at[w].saved = Len(at[w].mem) \/ Bug("starts before it is stored") \/ Bug("stored with the turn")
  /\ at' = [at EXCEPT ![w] = [@ EXCEPT !.pc = "runs"]]
  /\ starts' = starts + 1 /\ fed' = fed \union {at[w].mem}
  /\ UNCHANGED <<journal, over, sent, lease, cached, lapses, nonce>>
Answer(w) ==  \* each run of an activity gives another result
  /\ at[w].pc = "runs"
  /\ LET mem == Append(at[w].mem, [step |-> Len(at[w].mem) + 1, res |-> nonce])
     IN at' = [at EXCEPT ![w] = [@ EXCEPT !.pc = "ready", !.mem = mem,
                                  !.asks = @ \union (IF Len(mem) = 1 THEN {"call"} ELSE {})]]
  /\ nonce' = nonce + 1
  /\ UNCHANGED <<journal, over, sent, lease, cached, starts, fed, lapses>>

Stands(w) == lease.by = w /\ lease.epoch = at[w].epoch
Drop(w) ==
  /\ at' = [at EXCEPT ![w] = Idle]
  /\ lease' = IF Stands(w) THEN [lease EXCEPT !.by = None] ELSE lease
  /\ UNCHANGED <<journal, over, sent, cached, starts, fed, lapses, nonce>>
Unsaved(w) == SubSeq(at[w].mem, at[w].saved + 1, Len(at[w].mem))
\* With the right fence: the lease stands, the turn is open, and the part before is the last one that is stored.
MayStore(w) == /\ ~over
               /\ Stands(w) \/ Bug("no fence")
               /\ Len(journal) = at[w].saved \/ Bug("no part in the fence") \/ Bug("no fence")
Store(w) ==
  /\ at[w].pc = "ready" /\ at[w].saved < Len(at[w].mem) /\ Len(at[w].mem) < K
  /\ ~Bug("stored with the turn")
  /\ IF MayStore(w)
     THEN /\ journal' = journal \o Unsaved(w)
          /\ at' = [at EXCEPT ![w] = [@ EXCEPT !.saved = Len(at[w].mem)]]
          /\ UNCHANGED <<over, sent, lease, cached, starts, fed, lapses, nonce>>
     ELSE Drop(w)
Settle(w) ==
  /\ at[w].pc = "ready" /\ Len(at[w].mem) = K
  /\ IF MayStore(w)
     THEN /\ journal' = journal \o Unsaved(w) /\ over' = TRUE /\ sent' = at[w].asks
          /\ at' = [at EXCEPT ![w] = Idle] /\ lease' = [lease EXCEPT !.by = None]
          /\ UNCHANGED <<cached, starts, fed, lapses, nonce>>
     ELSE Drop(w)

Next == Lapse \/ \E w \in W : Claim(w) \/ Die(w) \/ Read(w) \/ Start(w) \/ Answer(w) \/ Store(w) \/ Settle(w)
Spec == Init /\ [][Next]_vars
Symmetry == Permutations(W)

--------------------------------------------------------------------------
\* The journal has each step once, in order: what two workers did is never mixed.
InTheirOrder == Len(journal) <= K /\ \A i \in 1..Len(journal) : journal[i].step = i
\* A crash repeats at most the one activity that ran.
OneRepeated == starts <= K + lapses
\* What an activity was started with is what the journal has at last: replay gives its caller the same results.
FedByJournal == over => \A m \in fed : Len(m) <= Len(journal) /\ m = SubSeq(journal, 1, Len(m))
\* What the code has asked for on the way is stored with the turn, also by a worker that found it in the journal.
AsksSent == over => sent = {"call"}
=============================================================================
