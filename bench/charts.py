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
        parts.append(text(left - 8, y + 15, name, anchor="end"))
        parts.append(f'<rect x="{left}" y="{y}" width="{long:.1f}" height="20" rx="2" fill="{colour}"/>')
        parts.append(text(left + long + 6, y + 15, label))
    return "\n".join([*parts, "</svg>\n"])


def waves_chart(title: str, lines: list[tuple[str, list[float], str]]) -> str:
    """A line for each: (name, values, colour). The scale begins at zero."""
    width, height, left, top, bottom = 720, 280, 60, 40, 30
    highest = max((value for _, values, _ in lines for value in values), default=1.0) or 1.0
    parts = [head(width, height, title)]
    for share in (0.0, 0.5, 1.0):
        y = height - bottom - share * (height - top - bottom)
        parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{width - 110}" y2="{y:.1f}" stroke="#8884" />')
        parts.append(text(left - 6, y + 4, f"{highest * share:,.0f}", anchor="end"))
    for name, values, colour in lines:
        step = (width - 110 - left) / max(1, len(values) - 1)
        points = [
            (left + n * step, height - bottom - value / highest * (height - top - bottom))
            for n, value in enumerate(values)
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        parts.append(text(points[-1][0] + 6, points[-1][1] + 4, name, colour=colour))
    return "\n".join([*parts, "</svg>\n"])


def text(
    x: float, y: float, words: str, *, anchor: str = "start", colour: str = "currentColor", font: str = FONT
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {font} fill="{colour}">{escape(words)}</text>'
    )


def head(width: int, height: int, title: str) -> str:
    size = f'viewBox="0 0 {width} {height}"'
    opened = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(title)}">'
    return opened + "\n" + text(8, 20, title, font=f'{FONT} font-weight="600"')
