----------------------------- MODULE LockOrder -----------------------------
(***************************************************************************)
(* In which order the transactions of PostgreSQL wait for row locks.  Two   *)
(* streams a and b; a1 and b1 are their heads and leased, a2 and b2 wait.   *)
(* A transaction is the list of the rows that it locks, kept to COMMIT.     *)
(* Claims are not here: SKIP LOCKED never waits.                            *)
(*                                                                          *)
(* The order is: user rows; messages, the head of a stream before its       *)
(* followers, and leases; stream rows, sorted.  Promotion writes a follower *)
(* after that: safe, because only who holds the head may wait for one.      *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets
CONSTANT Bugs
VARIABLES at, held      \* how many locks each transaction has taken; what it holds
vars == <<at, held>>
Bug(b) == b \in Bugs

Transactions == [
  \* two producers of both streams, placed by the deferred trigger at COMMIT
  producer1 |-> <<"user row", "stream a", "stream b">>,
  producer2 |-> IF Bug("streams unsorted") THEN <<"stream b", "stream a">> ELSE <<"stream a", "stream b">>,
  \* settles a1 and emits into b, and the other way about; promotion writes the next head.  What falls due in the same
  \* exchange, and what the handler's own transaction published before ctx.complete, is emission like any other.
  settle_a |-> IF Bug("emission left to the trigger") THEN <<"lease a1", "a1", "stream a", "a2", "stream b">>
               ELSE <<"lease a1", "a1", "stream a", "stream b", "a2">>,
  settle_b |-> IF Bug("emission left to the trigger") \/ Bug("timers fired after settling")
               THEN <<"lease b1", "b1", "stream b", "b2", "stream a">>
               ELSE <<"lease b1", "b1", "stream a", "stream b", "b2">>,
  \* a worker that lost both leases and does not know it, in one exchange
  late |-> IF Bug("leases unsorted") THEN <<"lease b1", "lease a1">> ELSE <<"lease a1", "lease b1">>,
  exchange |-> <<"lease a1", "lease b1", "a1", "b1", "stream a", "stream b", "a2", "b2">>,
  \* ctx.complete in the handler's own transaction
  complete |-> IF Bug("complete before a user row") THEN <<"lease a1", "a1", "stream a", "a2", "user row">>
               ELSE <<"user row", "lease a1", "a1", "stream a", "a2">>,
  \* release, cancel or set aside: the head, against claims; the message; the stream row
  operator |-> IF Bug("verb locks its message first") THEN <<"a2", "a1", "stream a">>
               ELSE IF Bug("verb locks the stream before the head") THEN <<"stream a", "a1", "a2">>
               ELSE <<"a1", "a2", "stream a">>]
T == DOMAIN Transactions

Init == at = [t \in T |-> 0] /\ held = [t \in T |-> {}]
Wanted(t) == Transactions[t][at[t] + 1]
More(t) == at[t] < Len(Transactions[t])
Blocks(u, t) == u # t /\ More(t) /\ Wanted(t) \in held[u]
Lock(t) == /\ More(t) /\ (\A u \in T : ~Blocks(u, t))
           /\ held' = [held EXCEPT ![t] = @ \cup {Wanted(t)}] /\ at' = [at EXCEPT ![t] = @ + 1]
Commit(t) == ~More(t) /\ held[t] # {} /\ held' = [held EXCEPT ![t] = {}] /\ at' = at
Next == \E t \in T : Lock(t) \/ Commit(t)
Spec == Init /\ [][Next]_vars

RECURSIVE Behind(_)
Behind(S) == LET more == S \cup {u \in T : \E t \in S : Blocks(u, t)} IN IF more = S THEN S ELSE Behind(more)
\* Nobody waits, through whomever, for itself.
NoDeadlock == \A t \in T : t \notin Behind({u \in T : Blocks(u, t)})
=============================================================================
