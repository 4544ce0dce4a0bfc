"""The results as one SVG picture: bars for models, lines for collectives."""
import html
import math

from .collectives import NAMES, OPS
from .settings import PEERS

COLOUR = {'tessera': '#0b6e4f', 'jax': '#6f4fb3', 'torch': '#d1495b', 'mesh_tf': '#e08e0b', 'mpi': '#3b7dd8'}
INK, PALE = '#222222', '#d9d9d9'
LEFT, BAR, GAP, PANEL = 150, 18, 8, 300  # pixels


class Canvas:
    def __init__(self):
        self.parts = []

    def text(self, x, y, words, size=12, anchor='start', weight='normal', colour=INK):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" fill="{colour}">{html.escape(words)}</text>')

    def box(self, x, y, width, height, colour):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(0, width):.1f}" height="{height:.1f}" fill="{colour}"/>')

    def line(self, points, colour, width=1.0):
        path = ' '.join(f'{x:.1f},{y:.1f}' for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>')

    def svg(self, width, height):
        body = '\n'.join(self.parts)
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
                f'font-family="Helvetica, Arial, sans-serif">\n<rect width="{width}" height="{height}" fill="white"/>\n{body}\n</svg>')


def bars(canvas, x, y, title, rows, unit, top):
    """`rows`: (system, value, least, most). Bars run from 0 to `top`."""
    canvas.text(x, y, title, weight='bold')
    for number, (peer, value, least, most) in enumerate(rows):
        at = y + 12 + number * (BAR + GAP)
        scale = PANEL / top
        canvas.box(x, at, PANEL, BAR, '#f2f2f2')
        canvas.box(x, at, value * scale, BAR, COLOUR[peer])
        if most > least:
            canvas.line([(least * scale + x, at + BAR / 2), (most * scale + x, at + BAR / 2)], INK, 1.5)
        inside = value * scale > PANEL * 0.75 and most == least
        end = (value if inside else max(value, most)) * scale
        canvas.text(x + end + (-6 if inside else 6), at + 13, f'{value:,.0f} {unit}', 11, 'end' if inside else 'start', colour='white' if inside else INK)


def model_panels(canvas, y, entry):
    """Share and memory of the best setting of each system. Returns the height used."""
    rows = [r for r in entry['final'] if r.status == 'ok']
    canvas.text(20, y, f'{entry["model"]}, {entry["dtype"]}', 15, weight='bold')
    if not rows:
        canvas.text(20, y + 24, 'nothing ran to the end')
        return 50
    y += 28
    for number, result in enumerate(rows):
        canvas.text(20, y + 25 + number * (BAR + GAP), f'{PEERS[result.setting.peer]} ({result.setting.mode.name})', 11)
    x = LEFT + 60
    bars(canvas, x, y, 'matrix products alone / time of a step',
         [(r.setting.peer, 100 * r.share(), 100 * min(r.shares()), 100 * max(r.shares())) for r in rows], '%', 100)
    memory = [r.peak_bytes / (1 << 20) for r in rows]
    bars(canvas, x + PANEL + 60, y, 'peak resident memory', [(r.setting.peer, m, m, m) for r, m in zip(rows, memory)], 'MiB', max(memory) * 1.02)
    return 28 + 24 + len(rows) * (BAR + GAP) + 20


def curves(canvas, x, y, width, height, title, lines):
    """`lines`: system -> [(bytes, GB/s)]. Both axes are logarithmic."""
    canvas.text(x, y - 8, title, weight='bold')
    points = [point for line in lines.values() for point in line]
    if not points:
        return
    low, high = (math.log2(f(size for size, _ in points)) for f in (min, max))
    bottom, top = (g(math.log10(f(rate for _, rate in points))) for f, g in ((min, math.floor), (max, math.ceil)))
    top = max(top, bottom + 1)
    place = lambda size, rate: (x + width * (math.log2(size) - low) / max(1, high - low), y + height * (top - math.log10(rate)) / (top - bottom))
    for power in range(bottom, top + 1):
        level = place(2 ** low, 10 ** power)[1]
        canvas.line([(x, level), (x + width, level)], PALE)
        canvas.text(x - 5, level + 4, f'{10.0 ** power:g}', 10, 'end')
    for size in sorted({size for size, _ in points}):
        at = place(size, 10 ** bottom)[0]
        canvas.text(at, y + height + 14, f'{size >> 10}K' if size < 1 << 20 else f'{size >> 20}M', 9, 'middle')
    for peer, line in lines.items():
        canvas.line([place(*point) for point in line], COLOUR[peer], 2)


def collective_panels(canvas, y, cells):
    canvas.text(20, y, 'collectives: payload of a rank over the time, GB/s', 15, weight='bold')
    peers = [peer for peer in NAMES if any(c.peer == peer and c.status == 'ok' for c in cells)]
    for number, peer in enumerate(peers):
        canvas.box(20 + number * 150, y + 14, 12, 12, COLOUR[peer])
        canvas.text(37 + number * 150, y + 24, NAMES[peer], 11)
    width, height = 370, 150
    for number, op in enumerate(OPS):
        lines = {peer: sorted((c.size, c.gigabytes()) for c in cells if (c.peer, c.op, c.status) == (peer, op, 'ok')) for peer in peers}
        curves(canvas, 70 + (number % 2) * (width + 70), y + 65 + (number // 2) * (height + 65), width, height, op, {p: l for p, l in lines.items() if l})
    return 65 + 2 * (height + 65)


def draw(models, cells):
    canvas, y = Canvas(), 36
    for entry in models:
        y += model_panels(canvas, y, entry)
    if cells:
        y += collective_panels(canvas, y, cells)
    return canvas.svg(LEFT + 60 + 2 * PANEL + 60 + 40, y + 10)
