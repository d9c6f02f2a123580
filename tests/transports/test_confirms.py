"""Answers of an AMQP channel against a model: every message gets the fate that the broker gave it, and gets it once."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from holdfast.transports.confirms import REFUSED, Confirms, OutOfStep, Returned
from holdfast.transports.contract import CONFIRMED, Fate, Outgoing, Rejected, Unroutable

Answer = tuple[int, bool, bool]  # number, multiple, accepted


def message(key: str = "k", id: str = "1", body: bytes = b"") -> Outgoing:
    return Outgoing("ex", body, id, "t", key)


def returned(of: Outgoing, reason: str = "312") -> Returned:
    return Returned(of.to, of.key, of.id, dict(of.headers), of.body, reason)


class Heard(dict[int, Fate]):
    """By index within its batch; a second fate fails."""

    is_finished = False

    def __call__(self, index: int, fate: Fate) -> None:
        assert index not in self
        self[index] = fate

    def finish(self) -> None:
        assert not self.is_finished
        self.is_finished = True


def publish(confirms: Confirms, messages: Sequence[Outgoing]) -> Heard:
    heard = Heard()
    confirms.publish(messages, heard, heard.finish)
    return heard


@pytest.mark.parametrize(
    ("answers", "refused"),
    [
        pytest.param(
            [(2, False, True), (4, False, True), (3, True, True), (12, True, True)], [], id="seen on 3.10"
        ),
        pytest.param([(12, False, False), (11, True, True)], [12], id="a refusal, then all before it"),
        pytest.param([(12, True, False)], list(range(1, 13)), id="all refused at once"),
        pytest.param([(0, True, True)], [], id="zero means all"),
        pytest.param(
            [(n, False, n % 2 == 0) for n in range(12, 0, -1)], [1, 3, 5, 7, 9, 11], id="backwards, in turns"
        ),
        pytest.param(
            [(6, True, True), (6, True, False), (3, False, False), (12, True, True)], [], id="answered twice"
        ),
    ],
)
def test_sequences_that_brokers_send(answers: list[Answer], refused: list[int]) -> None:
    confirms = Confirms()
    heard = publish(confirms, [message() for _ in range(12)])
    for number, multiple, accepted in answers:
        confirms.answer(number, multiple=multiple, accepted=accepted)
    assert heard == {n - 1: REFUSED if n in refused else CONFIRMED for n in range(1, 13)}
    assert heard.is_finished
    assert confirms.under_way == 0


@pytest.mark.parametrize("index", range(8))
@pytest.mark.parametrize("fate", ["confirmed", "refused", "unroutable", "unknown"])
def test_every_fate_at_every_index(fate: str, index: int) -> None:
    confirms = Confirms()
    batch = [message(id=str(n)) for n in range(8)]
    heard = publish(confirms, batch)
    if fate == "unroutable":
        confirms.give_back(returned(batch[index]))
    for number in range(1, 9):
        if number != index + 1 or fate != "unknown":
            accepted = not (number == index + 1 and fate == "refused")
            confirms.answer(number, multiple=False, accepted=accepted)
    wanted: dict[int, Fate] = dict.fromkeys(range(8), CONFIRMED)
    if fate == "refused":
        wanted[index] = REFUSED
    elif fate == "unroutable":
        wanted[index] = Unroutable("312")
    elif fate == "unknown":
        del wanted[index]
    assert heard == wanted
    assert heard.is_finished == (fate != "unknown")


def test_one_id_on_two_keys_is_told_apart() -> None:
    """Pairing by id reported the lost one as sent, and the stored one as lost (aiormq 7.2.4)."""
    confirms = Confirms()
    heard = publish(confirms, [message("nowhere"), message("q"), message("q")])
    confirms.give_back(returned(message("nowhere")))
    confirms.answer(3, multiple=True, accepted=True)
    assert heard == {0: Unroutable("312"), 1: CONFIRMED, 2: CONFIRMED}


def test_equal_messages_are_returned_in_their_order() -> None:
    confirms = Confirms()
    heard = publish(confirms, [message(), message(), message()])
    confirms.give_back(returned(message(), "first"))
    confirms.give_back(returned(message(), "second"))
    confirms.answer(3, multiple=True, accepted=True)
    assert heard == {0: Unroutable("first"), 1: Unroutable("second"), 2: CONFIRMED}


def test_a_return_is_paired_with_what_is_not_answered() -> None:
    confirms = Confirms()
    heard = publish(confirms, [message(), message()])
    confirms.answer(1, multiple=False, accepted=True)
    confirms.give_back(returned(message()))
    confirms.answer(2, multiple=False, accepted=True)
    assert heard == {0: CONFIRMED, 1: Unroutable("312")}


@pytest.mark.parametrize(
    "other", [message("else"), message(id="2"), message(body=b"x"), Outgoing("other", b"", "1", "t", "k")]
)
def test_a_return_of_something_else_ends_the_trust(other: Outgoing) -> None:
    confirms = Confirms()
    heard = publish(confirms, [message()])
    with pytest.raises(OutOfStep):
        confirms.give_back(returned(other))
    assert heard == {}


@pytest.mark.parametrize("number", [0, 4, 99, -1])
@pytest.mark.parametrize("multiple", [False, True])
def test_an_answer_to_nothing_ends_the_trust(number: int, multiple: bool) -> None:
    if multiple and number == 0:
        return  # means all
    confirms = Confirms()
    publish(confirms, [message()] * 3)
    with pytest.raises(OutOfStep):
        confirms.answer(number, multiple=multiple, accepted=True)


def test_an_empty_batch_and_numbers_over_many_batches() -> None:
    confirms = Confirms()
    assert publish(confirms, []) == {}
    first, second, third = (publish(confirms, [message()] * 2) for _ in range(3))
    confirms.answer(4, multiple=False, accepted=True)
    confirms.answer(3, multiple=True, accepted=True)
    assert (dict(first), dict(second), dict(third)) == (
        {0: CONFIRMED, 1: CONFIRMED},
        {0: CONFIRMED, 1: CONFIRMED},
        {},
    )
    fourth = publish(confirms, [message()])
    confirms.answer(7, multiple=True, accepted=False)
    assert list(third.values()) == [REFUSED, REFUSED]
    assert list(fourth.values()) == [REFUSED]


# --- Against a model ------------------------------------------------------------------------------------------------


class Model:
    """A broker that decides about each message when it comes, and answers when it likes."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.open: list[int] = []  # numbers that are not answered
        self.fates: dict[int, str] = {}  # by number, as decided
        self.sent: dict[int, Outgoing] = {}
        self.unreturned: list[int] = []  # unroutable, not given back yet, in order

    def take(self, number: int, given: Outgoing) -> None:
        self.sent[number] = given
        self.open.append(number)
        self.fates[number] = (
            "unroutable" if given.key == "nowhere" else self.dice.choice(["ack"] * 6 + ["refused"])
        )
        if self.fates[number] == "unroutable":
            self.unreturned.append(number)

    def give_back(self, tell: Callable[[Returned], None], up_to: int) -> None:
        """Returns come in order, each before its own confirm."""
        while self.unreturned and self.unreturned[0] <= up_to:
            tell(returned(self.sent[self.unreturned.pop(0)]))

    def answer(self, confirms: Confirms) -> None:
        number = self.dice.choice(self.open)
        self.give_back(confirms.give_back, number)
        accepted = self.fates[number] != "refused"
        alike = [each for each in self.open if each <= number]
        multiple = self.dice.random() < 0.4 and all(
            (self.fates[each] != "refused") == accepted for each in alike
        )
        confirms.answer(number, multiple=multiple, accepted=accepted)
        gone = set(alike) if multiple else {number}
        self.open = [each for each in self.open if each not in gone]


def play(seed: int) -> int:
    dice = random.Random(seed)
    confirms, model, published = Confirms(), Model(dice), 0
    batches: list[tuple[int, list[Outgoing], Heard]] = []
    ids = [str(n) for n in range(dice.randint(1, 4))]  # few, so that many messages share one
    for _ in range(dice.randint(1, 5)):
        batch = [
            message(dice.choice(["q", "q", "p", "nowhere"]), dice.choice(ids))
            for _ in range(dice.randint(0, 8))
        ]
        batches.append((published + 1, batch, publish(confirms, batch)))
        for each in batch:
            published += 1
            model.take(published, each)
        while model.open and dice.random() < 0.7:
            model.answer(confirms)
        if model.unreturned and dice.random() < 0.3:
            model.give_back(confirms.give_back, published)
    if dice.random() < 0.8:  # else the connection is lost with messages under way
        while model.open:
            model.answer(confirms)
    unanswered = set(model.open)
    kinds = {"ack": CONFIRMED, "refused": REFUSED, "unroutable": Unroutable("312")}
    for first, batch, heard in batches:
        numbers = range(first, first + len(batch))
        assert heard == {n - first: kinds[model.fates[n]] for n in numbers if n not in unanswered}, seed
        assert heard.is_finished == (bool(batch) and not unanswered & set(numbers)), seed
    assert confirms.under_way == len(unanswered), seed
    return published


def test_random_sequences_against_a_model() -> None:
    assert sum(play(seed) for seed in range(3_000)) > 20_000


@pytest.mark.faults("storms")
def test_100_000_random_sequences_against_a_model() -> None:
    messages = sum(play(seed) for seed in range(100_000))
    print(f"100,000 sequences of answers, {messages} messages: every fate as the model says")


def test_refusals_are_told_as_rejected() -> None:
    assert isinstance(REFUSED, Rejected)
