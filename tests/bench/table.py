"""The table of all rows, as text."""

from __future__ import annotations

from collections.abc import Mapping

from measuring import OURS, Row


def told(row: Row, figures: Mapping[str, float]) -> list[str]:
    """A row in lines: what was measured, ours first, then each target and whether it is met."""
    shown = {name: f"{figure * row.scale:,.{2 if figure * row.scale < 10 else 0}f}" for name, figure in figures.items()}
    first, *others = sorted(shown, key=lambda name: name != OURS)
    said = ", ".join([f"{first} {shown[first]} {row.unit}", *(f"{name} {shown[name]}" for name in others)])
    lines = [row.name + (f" ({row.note})" if row.note else ""), f"    {said}"]
    for target in row.targets:
        ratio, wanted = target.told(figures)
        lines.append(f"    {'met   ' if target.met(figures) else 'MISSED'} {target.of}: {ratio} ({wanted})")
    return lines
