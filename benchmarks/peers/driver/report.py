"""Results as JSON and Markdown. Ratios come first: absolute figures belong to one run on one machine."""
import json
import os
import statistics

from .collectives import NAMES, OPS
from .rounds import ratios
from .settings import PEERS


def machine():
    """The machine in general words."""
    with open('/proc/cpuinfo') as text:
        flags = next((line.split(':', 1)[1].split() for line in text if line.startswith('flags')), [])
    vectors = [name for flag, name in (('amx_bf16', 'AMX'), ('avx512_bf16', 'AVX-512 with bf16'), ('avx512f', 'AVX-512'), ('avx2', 'AVX2')) if flag in flags]
    with open('/proc/meminfo') as text:
        kib = next(int(line.split()[1]) for line in text if line.startswith('MemTotal'))
    return f'{len(os.sched_getaffinity(0))} cores, {vectors[0] if vectors else "no AVX2"}, {round(kib / (1 << 20))} GiB of memory'


def spread(values):
    """Median with the range over the rounds."""
    if len(values) < 2:
        return f'{values[0]:.2f}'
    return f'{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})'


def table(head, rows):
    lines = ['| ' + ' | '.join(head) + ' |', '|' + '---|' * len(head)]
    return lines + ['| ' + ' | '.join(str(cell) for cell in row) + ' |' for row in rows]


def figures(result, tokens, reference=None):
    """Cells from the ratio on."""
    if result.status != 'ok':
        return [f'{result.status.upper()}: {result.reason}', '', '', '', '', '']
    return [spread(ratios(result, reference)) if reference else '',
            f'{100 * result.share():.0f} %',
            f'{tokens / result.step_seconds():,.0f}',
            f'{result.peak_bytes / (1 << 20):,.0f}',
            f'{result.first_step_seconds:.1f}',
            f'{result.first_loss:.5f}']


def section(entry):
    """One model in one type."""
    lines = [f'## {entry["model"]}, {entry["dtype"]}', '', f'{entry["about"]}.', '']
    final = entry['final']
    tokens = entry['tokens']
    head = ['share of the matrix products', f'{entry["unit"]}/s', 'peak MiB', 'first step after s', 'first loss']
    if final:
        reference = next((r for r in final if r.status == 'ok'), None)
        rows = [[PEERS[r.setting.peer], r.setting.mode.about, *figures(r, tokens, reference)] for r in final]
        lines += table(['system', 'its best setting', f'time of a step over {PEERS[reference.setting.peer] if reference else "?"}\'s', *head], rows)
        peers = [r for r in final if r.status == 'ok' and r.setting.peer != 'tessera']
        if peers and reference.setting.peer == 'tessera':
            best = min(peers, key=lambda r: r.step_seconds())
            lines += ['', f'Speed of Tessera over the best other system, {best.name}: **{statistics.median(ratios(best, reference)):.2f}**.']
        lines.append('')
    lines += ['All settings tried:', '']
    rows = []
    for r in entry['tried']:
        cells = figures(r, tokens)
        rows.append([PEERS[r.setting.peer], r.setting.mode.name, r.setting.mode.about, *(cells[1:] if r.status == 'ok' else cells[:-1])])
    return lines + table(['system', 'setting', 'what it is', *head], rows) + ['']


WANTED = 1.2  # time of compiled PyTorch over Tessera's, of one drawn model in four


def over_tessera(entry, mode):
    """Per round: times of PyTorch's best setting of a mode over those of Tessera's; or why there are none."""
    results = {r.setting.kind: r for r in entry['final']}
    reference, peer = results.get('Tessera'), results.get(f'PyTorch {mode}')
    if reference and peer and reference.status == peer.status == 'ok':
        return ratios(peer, reference)
    lost = next((r for r in (reference, peer) if r and r.status != 'ok'), None)
    lost = lost or next((r for r in entry['tried'] if r.status != 'ok' and r.setting.kind in ('Tessera', f'PyTorch {mode}')), None)
    return f'{lost.status.upper()}: {lost.reason}' if lost else 'not asked for'


def drawn_verdict(entries, count):
    """(drawn models where Tessera is fast enough, those that must be), in words."""
    medians = [statistics.median(r) for r in (over_tessera(entry, 'compile') for entry in entries) if isinstance(r, list)]
    return sum(m >= WANTED for m in medians), -(-count // 4)


def drawn_section(entries, count):
    """Drawn models in one table."""
    rows = []
    for entry in entries:
        cells = [over_tessera(entry, mode) for mode in ('compile', 'eager')]
        measured = [cell for cell in cells if isinstance(cell, list)]
        names = {r.setting.kind: r.setting.mode.name for r in entry['final']}
        about, _, batch = entry['about'].partition(', batch ')
        rows.append([about, batch, names.get('Tessera', ''), *(spread(cell) if isinstance(cell, list) else cell for cell in cells),
                     f'{min(map(statistics.median, measured)):.2f}' if measured else ''])
    fast, wanted = drawn_verdict(entries, count)
    head = ['model', 'batch', 'Tessera\'s best layout', 'compiled PyTorch over Tessera', 'eager PyTorch over Tessera', 'the faster one']
    return ['## Drawn models', '', 'Time of a step of PyTorch\'s best setting over that of Tessera\'s, in the same round.', '', *table(head, rows), '',
            f'{len(entries)} of {count} models were run; {fast} at least {WANTED} times as fast as compiled PyTorch, {wanted} wanted.', '']


def collectives_section(cells, ranks):
    peers = [peer for peer in NAMES if any(c.peer == peer for c in cells)]
    lines = ['## collectives', '', f'{ranks} ranks. Payload of a rank over the time, GB/s; of Tessera also the share of the floor (traffic over the bandwidth of '
             'the same footprint and mix, and two barriers).', '']
    rows = []
    for op in OPS:
        for size in sorted({c.size for c in cells}):
            row = [op, f'{size >> 10} KiB' if size < 1 << 20 else f'{size >> 20} MiB']
            for peer in peers:
                cell = next(c for c in cells if (c.peer, c.op, c.size) == (peer, op, size))
                row.append(f'{cell.gigabytes():.3g}' if cell.status == 'ok' else cell.status.upper())
                if peer == 'tessera':
                    row.append(f'{100 * cell.share():.0f} %' if cell.status == 'ok' else '')
            rows.append(row)
    head = ['collective', 'payload']
    for peer in peers:
        head += [NAMES[peer], 'of its floor'] if peer == 'tessera' else [NAMES[peer]]
    lines += table(head, rows)
    reasons = sorted({(NAMES[c.peer], c.op, c.status, c.reason) for c in cells if c.status != 'ok'})
    lines += [''] + [f'- {status.upper()} {op} of {peer}: {reason}' for peer, op, status, reason in reasons]
    return lines + ['']


def markdown(run):
    lines = ['# Tessera beside other systems: one run', '', f'Machine: {run["machine"]}. Command: `{run["command"]}`.', '',
             f'Versions: {", ".join(run["versions"])}.', '',
             f'{run["rounds"]} rounds; all processes were there at once on the same cores and took turns, one at work at a time. Figures are medians; in brackets the '
             'range over the rounds. *Share of the matrix products*: the time that oneDNN takes for the matrix products of a step alone, measured in the same '
             'round, over the time of the step.', '']
    if run['drawn']:
        lines += drawn_section([entry for entry in run['models'] if entry['drawn']], run['drawn'])
    for entry in run['models']:
        lines += section(entry)
    if run['collectives']:
        lines += collectives_section(run['collectives'], run['ranks'])
    return '\n'.join(lines)


def plain(value):
    """Anything of ours as JSON."""
    if hasattr(value, '__dataclass_fields__'):
        return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def write(run, picture, folder):
    os.makedirs(folder, exist_ok=True)
    for name, text in (('results.json', json.dumps(plain(run), indent=1)), ('results.md', markdown(run)), ('results.svg', picture)):
        with open(os.path.join(folder, name), 'w', encoding='utf-8') as out:
            out.write(text + '\n')


def counts(run):
    """(passed, skipped, failed) settings, and collectives by system."""
    states = [r.status for entry in run['models'] for r in entry['tried'] + [f for f in entry['final'] if f.status != 'ok']]
    states += [status for _, _, status in {(c.peer, c.op, c.status) for c in run['collectives']}]
    return tuple(states.count(state) for state in ('ok', 'skip', 'fail'))
