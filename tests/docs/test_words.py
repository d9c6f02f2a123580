"""What the documents say: links lead somewhere, nothing is promised that cannot be."""

from __future__ import annotations

import re

import pytest

from tests.docs.blocks import OTHERS, ROOT, documents, text_of, without_blocks

LINK = re.compile(r"(?<!!)\[[^\]]+\]\((?P<target>[^)\s]+)\)")
# Written in two halves, so that this file does not say it either.
NEVER = "exactly-once " + "delivery"


def anchor_of(heading: str) -> str:
    """As GitHub makes it."""
    plain = re.sub(r"[`*]", "", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def anchors_of(document: str) -> set[str]:
    return {
        anchor_of(match[1]) for match in re.finditer(r"^#+ (.+)$", without_blocks(text_of(document)), re.M)
    }


# What readers called odd, and other words that had to be read twice.
ODD = (
    "has promised to do gets done",
    "times that count",
    "innocent condemned",
    "late, not lost",
    "and why so",
    "there to be asked",
)


@pytest.mark.parametrize("document", [each for each in documents() if each not in OTHERS])
def test_no_sentence_is_odd(document: str) -> None:
    """Remedy: say it in plain English."""
    text = " ".join(text_of(document).split()).lower()
    assert [each for each in ODD if each in text] == []


def test_the_readme_begins_with_the_words_that_people_search_for() -> None:
    beginning = text_of("README.md").split("```")[0]
    for word in (
        "transactional outbox",
        "job queue",
        "python",
        "sqlite",
        "postgresql",
        "background workers",
        "dead letter queue",
    ):
        assert word in " ".join(beginning.lower().split()), word


@pytest.mark.parametrize("document", documents())
def test_links_lead_somewhere(document: str) -> None:
    broken = []
    for match in LINK.finditer(without_blocks(text_of(document))):
        target, _, anchor = match["target"].partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        file = (ROOT / document).parent / target if target else ROOT / document
        known = file.exists() and (
            not anchor or anchor in anchors_of(file.resolve().relative_to(ROOT).as_posix())
        )
        if not known:
            broken.append(match["target"])
    assert broken == []


@pytest.mark.covers("X36")
def test_nothing_promises_what_nobody_can() -> None:
    """The words are allowed only where somebody says that they must not be said."""
    files = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("examples/*"),
        *ROOT.glob("src/**/*.py"),
        *ROOT.glob("src/**/*.sql"),
        ROOT / "pyproject.toml",
    ]
    said = [
        f"{file.relative_to(ROOT)}:{number}"
        for file in files
        if file.is_file() and file.relative_to(ROOT).as_posix() not in OTHERS
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if NEVER in line.lower().replace("exactly once", "exactly-once")
    ]
    assert said == []


def test_the_changelog_knows_this_version() -> None:
    version = re.search(r'^__version__ = "(.+)"$', (ROOT / "src/holdfast/__init__.py").read_text(), re.M)
    assert version is not None
    assert f"{version[1]}" in text_of("CHANGELOG.md")


def test_every_decision_is_listed() -> None:
    index = text_of("docs/decisions/README.md")
    pages = sorted(each.name for each in (ROOT / "docs/decisions").glob("0*.md"))
    assert pages
    assert [page for page in pages if f"({page})" not in index] == []


def test_every_guide_is_linked_from_the_readme() -> None:
    readme = text_of("README.md")
    guides = sorted(each.name for each in (ROOT / "docs").glob("*.md"))
    assert [guide for guide in guides if f"docs/{guide}" not in readme] == []
