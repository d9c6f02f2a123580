"""Two small charts as SVG, written by hand: bars with their numbers, and lines over waves."""

from __future__ import annotations

from html import escape

FONT = 'font-family="system-ui, sans-serif" font-size="13"'


def bars_chart(title: str, bars: list[tuple[str, float, str, str]]) -> str:
    """Horizontal bars: (name, value, label, colour)."""
    width, left, row = 720, 120, 28
    height = 44 + row * len(bars)
    longest = max((value for _, value, _, _ in bars), default=1.0) or 1.0
    parts = [head(width, height, title)]
    for n, (name, value, label, colour) in enumerate(bars):
        y = 36 + n * row
        long = max(1.0, (width - left - 90) * value / longest)
        parts.append(
            f'<text x="{left - 8}" y="{y + 15}" text-anchor="end" {FONT} fill="currentColor">{escape(name)}</text>'
        )
        parts.append(f'<rect x="{left}" y="{y}" width="{long:.1f}" height="20" rx="2" fill="{colour}"/>')
        parts.append(
            f'<text x="{left + long + 6:.1f}" y="{y + 15}" {FONT} fill="currentColor">{escape(label)}</text>'
        )
    return "\n".join([*parts, "</svg>\n"])


def waves_chart(title: str, lines: list[tuple[str, list[float], str]]) -> str:
    """A line for each: (name, values, colour). The scale begins at zero."""
    width, height, left, top, bottom = 720, 280, 60, 40, 30
    highest = max((value for _, values, _ in lines for value in values), default=1.0) or 1.0
    parts = [head(width, height, title)]
    for share in (0.0, 0.5, 1.0):
        y = height - bottom - share * (height - top - bottom)
        parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{width - 110}" y2="{y:.1f}" stroke="#8884" />')
        parts.append(
            f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end" {FONT} fill="currentColor">{highest * share:,.0f}</text>'
        )
    for name, values, colour in lines:
        step = (width - 110 - left) / max(1, len(values) - 1)
        points = [
            (left + n * step, height - bottom - value / highest * (height - top - bottom))
            for n, value in enumerate(values)
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        parts.append(
            f'<text x="{points[-1][0] + 6:.1f}" y="{points[-1][1] + 4:.1f}" {FONT} fill="{colour}">{escape(name)}</text>'
        )
    return "\n".join([*parts, "</svg>\n"])


def head(width: int, height: int, title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">\n'
        f'<text x="8" y="20" font-family="system-ui, sans-serif" font-size="14" font-weight="600" fill="currentColor">{escape(title)}</text>'
    )
