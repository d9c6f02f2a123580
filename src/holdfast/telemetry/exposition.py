"""Numbers as text, in the format that Prometheus scrapes (version 0.0.4)."""

from __future__ import annotations

from collections.abc import Iterable

from .families import FAMILIES, Family, Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def text(samples: Iterable[Sample]) -> str:
    """All samples, sorted by family; a family without samples is left out."""
    by_family: dict[str, list[Sample]] = {}
    for sample in samples:
        by_family.setdefault(sample.name, []).append(sample)
    lines: list[str] = []
    for name, family in FAMILIES.items():
        if name in by_family:
            lines += [f"# HELP {name} {family.help}", f"# TYPE {name} {family.kind}"]
            for sample in sorted(by_family[name]):
                lines += _lines(family, sample)
    return "\n".join([*lines, ""])


def _lines(family: Family, sample: Sample) -> list[str]:
    labels = [f'{name}="{_escaped(value)}"' for name, value in zip(family.labels, sample.labels, strict=True)]
    if family.kind != "histogram":
        return [f"{family.name}{_braced(labels)} {_number(sample.values[0])}"]
    lines, total = [], 0.0
    *counts, sum_ = sample.values
    for bound, count in zip((*family.buckets, None), counts, strict=True):
        total += count
        limited = [*labels, 'le="+Inf"' if bound is None else f'le="{_number(bound)}"']
        lines.append(f"{family.name}_bucket{_braced(limited)} {_number(total)}")
    lines.append(f"{family.name}_sum{_braced(labels)} {_number(sum_)}")
    lines.append(f"{family.name}_count{_braced(labels)} {_number(total)}")
    return lines


def _braced(labels: list[str]) -> str:
    return f"{{{','.join(labels)}}}" if labels else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
