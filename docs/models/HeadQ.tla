------------------------------- MODULE HeadQ -------------------------------
(***************************************************************************)
(* One stream of one queue: the one-head protocol with runs, set aside,     *)
(* release, halt, redrive and cancel.  There is no clock: a lease may lapse *)
(* at any instant, so nothing proved here leans on time.                    *)
(*                                                                          *)
(* Fine = TRUE   every lock of a transaction is a step: PostgreSQL.         *)
(* Fine = FALSE  a transaction is a step: SQLite, whose writers are serial. *)
(*                                                                          *)
(* Bugs is the empty set for the protocol.  A broken configuration plants   *)
(* one bug in it and must violate the invariant that it names.              *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
  W,         \* workers
  RC, RR,    \* producers in READ COMMITTED and in REPEATABLE READ
  MaxMsg, MaxEpoch,
  RunMax,    \* longest run that a claim hands out
  Endings,   \* besides done: "fail", "aside", "dead", "halt"
  Verbs,     \* of operators: "release", "aside", "cancel", "redrive", "now", "resume", "halt"
  Fine,
  Counting,  \* follow attempts and starts (costs states)
  Options,   \* right ways to build it that differ: "rr settles", "verb ends lapsed lease", "intact"
  Bugs

VARIABLES
  st,        \* absent waiting head loose dead done cancelled; loose = out of the order
  pos,       \* position, 0 = none; the dead and the done keep theirs as a memory
  ep,        \* epoch
  lease,     \* owner of the lease row of a message, or None
  rend,      \* run_end of the lease row: the last position handed out
  seq,       \* the sequence that positions are drawn from
  open, halted, rowx,  \* the stream row, and whether it exists
  rowl,      \* who holds the stream row's lock
  ppc, pl,   \* producers: step; <<row changed since my snapshot, order not empty in it, position drawn early>>
  wpc, wrun, wep,      \* workers: step; the run as handed out and not yet settled; epoch of its head
  wsnap,     \* <<>>, or <<waiting messages of my snapshot, row changed since>>
  wst,       \* how many of wrun have been started
  op,        \* the operator's transaction: <<>> or <<verb, message, first message of the order when it was locked>>
  eff,       \* effects of transactional handlers that were committed
  att, starts \* attempts stored on the message; handlers really started

msgs == <<st, pos, ep, lease, rend, seq, eff, att>>
row  == <<open, halted, rowx>>
prod == <<ppc, pl>>
work == <<wpc, wrun, wep, wsnap, wst>>
vars == <<msgs, row, rowl, prod, work, op, starts>>

M    == 1..MaxMsg
P    == RC \cup RR
None == "none"
ByOperator == MaxMsg + 1          \* halted by a person, not by a death
Bug(b)  == b \in Bugs
Says(o) == o \in Options
Symmetry == Permutations(W) \cup Permutations(RC) \cup Permutations(RR)

Ord     == {m \in M : st[m] \in {"waiting", "head"}}
Waiting == {m \in M : st[m] = "waiting"}
Heads   == {m \in M : st[m] = "head"}
Lowest(S) == CHOOSE m \in S : \A n \in S : pos[m] <= pos[n]
RECURSIVE Line(_)
Line(S) == IF S = {} THEN << >> ELSE LET m == Lowest(S) IN <<m>> \o Line(S \ {m})
Upto(h) == {m \in Ord : pos[m] <= rend[h]} \cup {h}     \* what the lease on h covers
Covered(m) == \E h \in M : lease[h] # None /\ m \in Upto(h)

RowUpdated == ~Bug("row only locked") /\ ~Bug("row untouched")
HeadNow == open = 0 /\ halted = 0       \* a new message of this stream is its head

Init ==
  /\ st = [m \in M |-> "absent"] /\ pos = [m \in M |-> 0] /\ ep = [m \in M |-> 0]
  /\ lease = [m \in M |-> None] /\ rend = [m \in M |-> 0] /\ seq = 0
  /\ eff = [m \in M |-> 0] /\ att = [m \in M |-> 0] /\ starts = [m \in M |-> 0]
  /\ open = 0 /\ halted = 0 /\ rowx = FALSE /\ rowl = None
  /\ ppc = [p \in P |-> "idle"] /\ pl = [p \in P |-> <<FALSE, FALSE, 0>>]
  /\ wpc = [w \in W |-> "idle"] /\ wrun = [w \in W |-> << >>] /\ wep = [w \in W |-> 0]
  /\ wsnap = [w \in W |-> << >>] /\ wst = [w \in W |-> 0]
  /\ op = << >>

\* A commit that updated the stream row: older snapshots will fail on it with 40001.
Fresh == <<FALSE, FALSE, 0>>
StaleP == IF RowUpdated THEN [p \in P |-> IF ppc[p] = "begun" THEN [pl[p] EXCEPT ![1] = TRUE] ELSE pl[p]] ELSE pl
StaleW == IF RowUpdated THEN [w \in W |-> IF wsnap[w] # << >> THEN [wsnap[w] EXCEPT ![2] = TRUE] ELSE wsnap[w]] ELSE wsnap

--------------------------------------------------------------------------
\* Locks that are held on message rows between the steps of a transaction.
Settling(h) == \E w \in W : wpc[w] \in {"fenced", "placed"} /\ wrun[w][1] = h
Holding == {"release", "aside", "cancel", "halt"}       \* verbs that hold the first message of the order, so that nothing is claimed
OfStream == {"resume", "halt"}                         \* verbs whose message is a dummy
OpHolds(m) == op # << >> /\ ((m = op[2] /\ op[1] \notin OfStream) \/ (m = op[3] /\ ~Bug("verb locks own row only")))
Free(h) == ~Settling(h) /\ ~OpHolds(h)

--------------------------------------------------------------------------
\* Producers.  The message is inserted at the call and placed at COMMIT by the deferred trigger,
\* so the transaction begins to matter to others at PLock; a REPEATABLE READ one took its snapshot before.
PBegin(p) ==
  /\ ppc[p] = "idle" /\ (p \in RR \/ Bug("position drawn early")) /\ (\E m \in M : st[m] = "absent")
  /\ ppc' = [ppc EXCEPT ![p] = "begun"]
  /\ pl' = [pl EXCEPT ![p] = <<FALSE, Ord # {}, IF Bug("position drawn early") THEN seq + 1 ELSE 0>>]
  /\ seq' = IF Bug("position drawn early") THEN seq + 1 ELSE seq
  /\ UNCHANGED <<st, pos, ep, lease, rend, eff, att, starts, row, rowl, work, op>>
Ready(p) == ppc[p] = (IF p \in RR \/ Bug("position drawn early") THEN "begun" ELSE "idle")
Refused(p) == p \in RR /\ pl[p][1] /\ rowx          \* 40001: could not serialize access
PLock(p) ==
  /\ Fine /\ Ready(p) /\ rowl = None /\ (\E m \in M : st[m] = "absent")
  /\ IF Refused(p) THEN ppc' = [ppc EXCEPT ![p] = "idle"] /\ pl' = [pl EXCEPT ![p] = Fresh] /\ rowl' = rowl
                   ELSE ppc' = [ppc EXCEPT ![p] = "locked"] /\ pl' = pl /\ rowl' = p
  /\ UNCHANGED <<msgs, starts, row, work, op>>
PCommit(p) ==
  /\ IF Fine THEN ppc[p] = "locked" ELSE Ready(p) /\ rowl = None /\ ~Refused(p)
  /\ \E m \in M :
     LET head == IF Bug("row read again") /\ p \in RR /\ ~rowx THEN ~pl[p][2]      \* the deleted row is still in its snapshot
                 ELSE IF RowUpdated THEN open = 0 /\ (halted = 0 \/ Bug("producer ignores halt"))
                 ELSE IF p \in RR THEN ~pl[p][2] ELSE Ord = {}
         at == IF Bug("position drawn early") THEN pl[p][3] ELSE seq + 1
     IN /\ st[m] = "absent" /\ (\A n \in 1..(m - 1) : st[n] # "absent")     \* numbered in the order of commit
        /\ st' = [st EXCEPT ![m] = IF head THEN "head" ELSE "waiting"]
        /\ pos' = [pos EXCEPT ![m] = at]
        /\ seq' = IF at > seq THEN at ELSE seq
  /\ open' = open + 1 /\ rowx' = TRUE /\ halted' = halted
  /\ rowl' = None /\ ppc' = [ppc EXCEPT ![p] = "idle"] /\ pl' = [StaleP EXCEPT ![p] = Fresh]
  /\ wsnap' = StaleW
  /\ UNCHANGED <<ep, lease, rend, eff, att, starts, wpc, wrun, wep, wst, op>>
PAbort(p) ==
  /\ ppc[p] \in {"begun", "locked"} /\ ~Bug("position drawn early")
  /\ rowl' = IF rowl = p THEN None ELSE rowl
  /\ ppc' = [ppc EXCEPT ![p] = "idle"] /\ pl' = [pl EXCEPT ![p] = Fresh]
  /\ UNCHANGED <<msgs, starts, row, work, op>>
\* Housekeeping deletes the row of an empty stream; it can matter only to older snapshots.
Sweep == /\ RR # {} /\ rowx /\ open = 0 /\ halted = 0 /\ rowl = None /\ rowx' = FALSE
         /\ UNCHANGED <<msgs, starts, open, halted, rowl, prod, work, op>>

--------------------------------------------------------------------------
\* Claims.  One row is written, the head's lease; the followers are only read.
Followers(h) == Line({m \in Waiting : pos[m] > pos[h]})
Runs(h) == IF st[h] = "loose" THEN {<<h>>}
           ELSE LET f == Followers(h) IN {<<h>> \o SubSeq(f, 1, k) : k \in 0..(IF Len(f) < RunMax THEN Len(f) ELSE RunMax - 1)}
Hand(w, run) ==
  LET h == run[1] last == run[Len(run)] IN
  /\ ep[h] < MaxEpoch /\ Free(h)
  /\ lease' = [lease EXCEPT ![h] = w] /\ ep' = [ep EXCEPT ![h] = @ + 1]
  /\ rend' = [rend EXCEPT ![h] = IF st[h] = "loose" THEN 0 ELSE IF pos[last] > pos[h] THEN pos[last] ELSE pos[h]]
  /\ wpc' = [wpc EXCEPT ![w] = "working"] /\ wrun' = [wrun EXCEPT ![w] = run] /\ wep' = [wep EXCEPT ![w] = ep[h] + 1]
  /\ wst' = [wst EXCEPT ![w] = 0]
Claim(w) ==
  /\ wpc[w] = "idle"
  /\ \E h \in M : /\ st[h] \in {"head", "loose"} /\ lease[h] = None
                  /\ ~(Bug("claim reads followers first") /\ Fine /\ st[h] = "head")
                  /\ \E run \in Runs(h) : Hand(w, run)
  /\ UNCHANGED <<st, pos, seq, eff, att, starts, row, rowl, prod, wsnap, op>>
\* Bug: the run is read in the statement that looks for the head, before the head's row is locked.
ClaimLook(w) ==
  /\ Bug("claim reads followers first") /\ Fine /\ wpc[w] = "idle"
  /\ \E h \in Heads : lease[h] = None /\ \E run \in Runs(h) : wrun' = [wrun EXCEPT ![w] = run]
  /\ wpc' = [wpc EXCEPT ![w] = "looking"]
  /\ UNCHANGED <<msgs, starts, row, rowl, prod, wep, wsnap, wst, op>>
ClaimTake(w) ==
  /\ wpc[w] = "looking" /\ st[wrun[w][1]] = "head" /\ lease[wrun[w][1]] = None /\ Hand(w, wrun[w])
  /\ UNCHANGED <<st, pos, seq, eff, att, starts, row, rowl, prod, wsnap, op>>
\* Somebody's lease has lapsed, at any instant: nobody can know which of the run had started.
Lost(h) == IF Bug("take-over counts the head only") THEN {h} ELSE Upto(h)
Count(S) == IF Counting THEN [m \in M |-> IF m \in S THEN att[m] + 1 ELSE att[m]] ELSE att
Takeover(w) ==
  /\ wpc[w] = "idle"
  /\ \E h \in M : /\ st[h] \in {"head", "loose"} /\ lease[h] # None
                  /\ \E run \in Runs(h) : Hand(w, run)
                  /\ att' = Count(Lost(h))
  /\ UNCHANGED <<st, pos, seq, eff, starts, row, rowl, prod, wsnap, op>>

--------------------------------------------------------------------------
\* A worker at work.
Holds(w) == LET h == wrun[w][1] IN ep[h] = wep[w] /\ lease[h] # None /\ st[h] \in {"head", "loose"}
Passes(w) == Holds(w) \/ Bug("no fence") \/ Bug("run fenced message by message")
Done(w) == wpc' = [wpc EXCEPT ![w] = "idle"] /\ wrun' = [wrun EXCEPT ![w] = << >>]
           /\ wep' = [wep EXCEPT ![w] = 0] /\ wst' = [wst EXCEPT ![w] = 0]
Start(w) ==
  /\ Counting /\ wpc[w] = "working" /\ wst[w] < Len(wrun[w])
  /\ wst' = [wst EXCEPT ![w] = @ + 1] /\ starts' = [starts EXCEPT ![wrun[w][wst[w] + 1]] = @ + 1]
  /\ UNCHANGED <<msgs, row, rowl, prod, wpc, wrun, wep, wsnap, op>>
\* kill -9, a lost connection, or a commit that is refused: what was not committed is rolled back.
Crash(w) ==
  /\ wpc[w] \notin {"idle", "dead"}
  /\ rowl' = IF rowl = w THEN None ELSE rowl
  /\ wsnap' = [wsnap EXCEPT ![w] = << >>]
  /\ IF Counting THEN wpc' = [wpc EXCEPT ![w] = "dead"] /\ UNCHANGED <<wrun, wep, wst>> ELSE Done(w)
  /\ UNCHANGED <<msgs, starts, row, prod, op>>
\* The epoch belongs to the message: it outlives the lease row.
Forget(S) == IF Bug("epoch dies with the lease row") THEN [m \in M |-> IF m \in S THEN ep[m] - 1 ELSE ep[m]] ELSE ep

\* The supervisor of a dead child: what it had started counts, the rest goes back.  Or the whole machine is gone.
Report(w) ==
  /\ wpc[w] = "dead" /\ Done(w)
  /\ LET h == wrun[w][1] IN
     \/ UNCHANGED <<ep, lease, rend, att>>
     \/ /\ Holds(w) /\ lease[h] = w /\ Free(h)
        /\ lease' = [lease EXCEPT ![h] = None] /\ rend' = [rend EXCEPT ![h] = 0]
        /\ ep' = Forget({h}) /\ att' = Count({wrun[w][i] : i \in 1..wst[w]})
  /\ UNCHANGED <<st, pos, seq, eff, starts, row, rowl, prod, wsnap, op>>

\* Settlements of one row only: the whole run given back; a strict failure of the head, which stays
\* head until its retry (without counters the two are the same change); any ending of a loose message.
GiveBack(w) ==
  /\ wpc[w] = "working" /\ Holds(w) /\ Free(wrun[w][1]) /\ Done(w)
  /\ LET h == wrun[w][1] IN
     /\ lease' = [lease EXCEPT ![h] = None] /\ rend' = [rend EXCEPT ![h] = 0]
     /\ ep' = Forget({h})
     /\ \/ wst[w] = 0 /\ att' = att
        \/ wst[w] = 1 /\ att' = Count({h})
  /\ UNCHANGED <<st, pos, seq, eff, starts, row, rowl, prod, wsnap, op>>
SettleLoose(w) ==
  /\ wpc[w] = "working" /\ (Counting => wst[w] = 1) /\ Done(w)
  /\ LET h == wrun[w][1] IN
     /\ st[h] = "loose" /\ Free(h) /\ Holds(w)
     /\ lease' = [lease EXCEPT ![h] = None] /\ rend' = [rend EXCEPT ![h] = 0]
     /\ \/ st' = [st EXCEPT ![h] = "done"] /\ eff' = [eff EXCEPT ![h] = @ + 1]
        \/ Endings \cap {"dead", "halt"} # {} /\ st' = [st EXCEPT ![h] = "dead"] /\ eff' = eff     \* never halts
  /\ UNCHANGED <<pos, ep, seq, att, starts, row, rowl, prod, wsnap, op>>

\* Settlement of a prefix of the run, in steps: fence on the head's (id, epoch), then the stream row, then
\* promotion in a new statement and COMMIT.
Fenced(w) ==
  /\ Fine /\ wpc[w] = "working" /\ Free(wrun[w][1]) /\ Passes(w) /\ st[wrun[w][1]] # "loose"
  /\ wpc' = [wpc EXCEPT ![w] = "fenced"]
  /\ \/ ~Bug("promotion in the same statement") /\ wsnap' = wsnap
     \/ (Says("rr settles") \/ Bug("promotion in the same statement")) /\ wsnap' = [wsnap EXCEPT ![w] = <<Waiting, FALSE>>]
  /\ UNCHANGED <<msgs, starts, row, rowl, prod, wrun, wep, wst, op>>
Placed(w) ==
  /\ wpc[w] = "fenced"
  /\ IF Bug("row untouched")
     THEN rowl' = rowl /\ wpc' = [wpc EXCEPT ![w] = "placed"] /\ wsnap' = [wsnap EXCEPT ![w] = <<Waiting, FALSE>>]
     ELSE /\ rowl = None
          /\ IF wsnap[w] # << >> /\ wsnap[w][2] /\ ~Bug("promotion in the same statement")
             THEN wpc' = [wpc EXCEPT ![w] = "working"] /\ wsnap' = [wsnap EXCEPT ![w] = << >>] /\ rowl' = rowl      \* 40001
             ELSE wpc' = [wpc EXCEPT ![w] = "placed"] /\ wsnap' = wsnap /\ rowl' = w
  /\ UNCHANGED <<msgs, starts, row, prod, wrun, wep, wst, op>>
\* Bug: each message of the run is fenced by its own row as it was handed out.
Own(w) == IF Bug("run fenced message by message") THEN (IF Holds(w) THEN {wrun[w][1]} ELSE {}) \cup Waiting ELSE M
Settle(w) ==
  /\ IF Fine THEN wpc[w] = "placed" ELSE wpc[w] = "working" /\ Passes(w) /\ st[wrun[w][1]] # "loose"
  /\ \E d \in 0..Len(wrun[w]), x \in {"none"} \cup Endings, go \in BOOLEAN :
     LET run  == wrun[w]
         h    == run[1]
         k    == IF x = "none" THEN d ELSE d + 1              \* this commit speaks of so many
         bad  == IF x = "none" THEN {} ELSE {run[k]}
         good == {run[i] : i \in 1..d} \cap Own(w)
         gone == good \cup (IF x \in {"none", "fail"} THEN {} ELSE bad)
         rest == SubSeq(run, k + 1, Len(run))
         view == IF wsnap[w] = << >> THEN Waiting ELSE wsnap[w][1]
         next == {m \in view \ gone : \A g \in gone : pos[m] > pos[g]}
         n    == IF next = {} \/ x = "halt" \/ st[Lowest(next)] # "waiting" THEN 0 ELSE Lowest(next)
         on   == go /\ n # 0 /\ n = rest[1] /\ ep[n] < MaxEpoch    \* the lease moves on to the next head
         e    == IF Bug("moved lease copies its epoch") THEN wep[w] ELSE ep[n] + 1
     IN
     /\ 1 <= k /\ k <= Len(run) /\ gone # {}
     /\ go => (x \notin {"fail", "halt"} /\ rest # << >>)
     /\ Counting => (k <= wst[w] /\ (x # "none" => k = wst[w]) /\ (go \/ k = wst[w]))
     /\ \A m \in gone \cup {n} : ~OpHolds(m)
     /\ Says("intact") => \A m \in gone \ {h} : st[m] = "waiting" /\ pos[m] <= rend[h]
     /\ st' = [m \in M |-> IF m \in good THEN "done"
                           ELSE IF m \in gone THEN (IF x = "aside" THEN "loose" ELSE "dead")
                           ELSE IF m = n THEN "head" ELSE st[m]]
     /\ pos' = [m \in M |-> IF m \in gone /\ m \notin good /\ x = "aside" THEN 0 ELSE pos[m]]
     /\ ep' = [m \in M |-> IF on /\ m = n THEN e ELSE ep[m]]
     /\ lease' = [m \in M |-> IF m \in gone THEN None ELSE IF on /\ m = n THEN w ELSE lease[m]]
     /\ rend' = [m \in M |-> IF m \in gone THEN 0 ELSE IF on /\ m = n THEN rend[h] ELSE rend[m]]
     /\ eff' = [m \in M |-> IF m \in good THEN eff[m] + 1 ELSE eff[m]]
     /\ att' = IF x \in {"fail", "aside"} THEN Count(bad) ELSE att
     /\ open' = open - (IF Bug("set aside forgets open") /\ x = "aside" THEN Cardinality(good) ELSE Cardinality(gone))
     /\ halted' = IF x = "halt" THEN run[k] ELSE halted
     /\ IF on THEN /\ wpc' = [wpc EXCEPT ![w] = "working"] /\ wrun' = [wrun EXCEPT ![w] = rest]
                   /\ wep' = [wep EXCEPT ![w] = e] /\ wst' = [wst EXCEPT ![w] = @ - (IF Counting THEN k ELSE 0)]
              ELSE Done(w)
  /\ rowl' = IF rowl = w THEN None ELSE rowl
  /\ pl' = StaleP /\ wsnap' = [StaleW EXCEPT ![w] = << >>]
  /\ UNCHANGED <<seq, starts, rowx, ppc, op>>

--------------------------------------------------------------------------
\* Operators.  A verb on a message in the order locks the first one of the order (the head, unless the stream is halted)
\* and the message itself, and only then looks for a lease that covers it; then it takes the stream row and looks again
\* whether the first is still the first.  Redrive and resume need the stream row only: they are one step.
May(v, m) ==
  CASE v = "release" -> st[m] = "waiting"
    [] v = "aside"   -> st[m] = "head"
    [] v = "cancel"  -> st[m] \in {"waiting", "head", "loose"}
    [] v \in {"redrive", "now"} -> st[m] = "dead" /\ ep[m] < MaxEpoch
    [] v = "resume"  -> m = 1 /\ halted # 0
    [] v = "halt"    -> m = 1 /\ halted = 0 /\ rowx
Blocked(v, m) == IF v = "halt" THEN \E h \in Heads : lease[h] # None ELSE Covered(m)
Allowed(v, m) == \/ ~Blocked(v, m)
                 \/ Says("verb ends lapsed lease") /\ v # "halt"
                 \/ Bug("verb inside a live run") /\ st[m] = "waiting"
First(v, m) == IF Ord = {} \/ (v # "halt" /\ st[m] = "loose") THEN 0 ELSE Lowest(Ord)
OBegin(v, m) ==
  /\ Fine /\ op = << >> /\ v \in Verbs \cap Holding /\ May(v, m) /\ Allowed(v, m)
  /\ v \notin OfStream => ~Settling(m)
  /\ ~Bug("verb locks own row only") => ~Settling(First(v, m))
  /\ op' = <<v, m, First(v, m)>>
  /\ UNCHANGED <<msgs, starts, row, rowl, prod, work>>
OAbort == op # << >> /\ op' = << >> /\ UNCHANGED <<msgs, starts, row, rowl, prod, work>>
OCommit(v, m) ==
  /\ rowl = None
  /\ IF Fine /\ v \in Holding
     THEN op # << >> /\ op[1] = v /\ op[2] = m /\ May(v, m) /\ (op[3] = First(v, m) \/ Bug("verb does not look again"))
     ELSE v \in Verbs /\ May(v, m) /\ (v \in Holding => Allowed(v, m))
  /\ op' = (IF v \in Holding THEN << >> ELSE op) /\ rowl' = rowl /\ pl' = StaleP /\ wsnap' = StaleW
  /\ LET ended == IF Says("verb ends lapsed lease") /\ v \in Holding THEN {h \in M : lease[h] # None /\ m \in Upto(h)} ELSE {}
         leaves == v \in {"release", "aside", "cancel"} /\ m \in Ord
         back == v = "redrive"
         first == back /\ halted = m                  \* the stream is halted by it: its old place, at the front
         keep == first \/ Bug("redrive keeps the place")
         wait == IF v \in OfStream THEN Waiting ELSE Waiting \ {m}
         wake == \/ leaves /\ st[m] = "head"
                 \/ v = "resume"
                 \/ v = "now" /\ halted = m /\ ~Bug("redrive now keeps the halt")
         n == IF wake /\ wait # {} THEN Lowest(wait) ELSE 0
     IN
     /\ v \notin Holding /\ n # 0 => ~OpHolds(n)
     /\ st' = [i \in M |-> IF i = m /\ v \in {"release", "aside", "now"} THEN "loose"
                           ELSE IF i = m /\ v = "cancel" THEN "cancelled"
                           ELSE IF i = m /\ back THEN (IF first \/ HeadNow THEN "head" ELSE "waiting")
                           ELSE IF i = n THEN "head"
                           ELSE IF v = "halt" /\ st[i] = "head" THEN "waiting" ELSE st[i]]
     /\ pos' = [pos EXCEPT ![m] = IF v \in {"release", "aside", "now"} THEN 0 ELSE IF back /\ ~keep THEN seq + 1 ELSE @]
     /\ seq' = IF back /\ ~keep THEN seq + 1 ELSE seq
     /\ ep' = [i \in M |-> IF i = m /\ v \in {"redrive", "now"}
                           THEN (IF Bug("redrive resets the epoch") THEN 0 ELSE ep[i] + 1) ELSE Forget(ended)[i]]
     /\ lease' = [i \in M |-> IF i \in ended THEN None ELSE lease[i]]
     /\ rend' = [i \in M |-> IF i \in ended THEN 0 ELSE rend[i]]
     /\ att' = IF ended # {} THEN Count(UNION {Upto(h) : h \in ended}) ELSE att
     /\ open' = IF leaves THEN open - 1 ELSE IF back THEN open + 1 ELSE open
     /\ halted' = CASE v = "halt" -> ByOperator
                    [] v = "resume" \/ first -> 0
                    [] v = "now" /\ halted = m /\ ~Bug("redrive now keeps the halt") -> 0
                    [] OTHER -> halted
     /\ rowx' = (rowx \/ back)
  /\ UNCHANGED <<eff, starts, ppc, wpc, wrun, wep, wst>>

--------------------------------------------------------------------------
Next == \/ \E p \in P : PBegin(p) \/ PLock(p) \/ PCommit(p) \/ PAbort(p)
        \/ Sweep
        \/ \E w \in W : \/ Claim(w) \/ ClaimLook(w) \/ ClaimTake(w) \/ Takeover(w) \/ Start(w) \/ Crash(w) \/ Report(w)
                        \/ GiveBack(w) \/ SettleLoose(w) \/ Fenced(w) \/ Placed(w) \/ Settle(w)
        \/ \E v \in Verbs, m \in M : OBegin(v, m) \/ OCommit(v, m)
        \/ OAbort
Spec == Init /\ [][Next]_vars

--------------------------------------------------------------------------
OneHead == Cardinality(Heads) <= 1
\* At most one worker has a token that still passes, for the order and for each message out of it.
OneHolder == \A u, v \in W : (u # v /\ wrun[u] # << >> /\ wrun[v] # << >> /\ wpc[u] # "looking" /\ wpc[v] # "looking"
                              /\ wpc[u] # "dead" /\ wpc[v] # "dead" /\ Holds(u) /\ Holds(v))
                  => wrun[u][1] # wrun[v][1] /\ (st[wrun[u][1]] = "loose" \/ st[wrun[v][1]] = "loose")
ExactlyOnce == \A m \in M : eff[m] <= 1 /\ (eff[m] = 1 <=> st[m] = "done")
\* What took effect in the order (it keeps its position) is below everything that is still in the order.
InOrder == \A m \in Ord, n \in M : (st[n] = "done" /\ pos[n] > 0) => pos[n] < pos[m]
NoStranded == (halted = 0 /\ Waiting # {}) => Heads # {}
HeadIsFirst == \A h \in Heads, m \in Waiting : pos[h] < pos[m]
OrderHasPositions == \A m \in Ord : pos[m] > 0
OpenIsCount == open = Cardinality(Ord)
HaltedIsQuiet == halted # 0 => Heads = {}
\* The run in the hands of a holder is exactly the front of the order up to run_end.
RunIsFront == \A w \in W : (wpc[w] \notin {"idle", "looking"} /\ Holds(w) /\ st[wrun[w][1]] = "head")
                  => wrun[w] = Line(Upto(wrun[w][1]))
\* No start is ever forgotten: what is stored, plus the lease that stands, covers every handler that was started.
StartsCounted == \A m \in M : (m \in Ord \/ st[m] = "loose") => starts[m] <= att[m] + (IF Covered(m) THEN 1 ELSE 0)

EpochNeverFalls == [][\A m \in M : ep'[m] >= ep[m]]_vars
\* A position that appears is above every other that is there: positions follow the order of commits.
CommitOrder == [][\A m, n \in M : (pos'[m] # pos[m] /\ pos'[m] # 0 /\ m # n /\ pos'[n] = pos[n]) => pos'[m] > pos[n]]_vars
=============================================================================
