"""Collectives between two ranks, system by system, in turns."""
import dataclasses
import statistics

from .process import Failed, Skipped

OPS = ('all_reduce', 'reduce_scatter', 'all_gather', 'all_to_all')
NAMES = {'tessera': 'Tessera threads', 'jax': 'JAX host devices', 'torch': 'gloo', 'mpi': 'Open MPI'}
SIZES = (1 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20)


def repeats(size):
    """So many at a time that one measurement takes milliseconds, not seconds."""
    return max(3, min(500, (16 << 20) // size))


@dataclasses.dataclass
class Cell:
    """One collective of one system. `seconds` and `floor`: per round."""
    peer: str
    op: str
    size: int
    seconds: list = dataclasses.field(default_factory=list)
    floor: list = dataclasses.field(default_factory=list)
    status: str = 'ok'
    reason: str = ''

    def gigabytes(self):
        """Payload of a rank over the time."""
        return self.size / statistics.median(self.seconds) / 1e9

    def share(self):
        """Of the floor: traffic over the bandwidth of the same footprint and mix, and two barriers."""
        return statistics.median(f / s for f, s in zip(self.floor, self.seconds)) if self.floor else None


def ask(process, cell):
    try:
        answer = process.request(f'collective {cell.op} {cell.size} {repeats(cell.size)}')
        cell.seconds.append(statistics.median(answer['seconds']))
        if 'floor' in answer:
            cell.floor.append(statistics.median(answer['floor']))
        return True
    except Skipped as reason:
        cell.status, cell.reason = 'skip', str(reason)
        return True
    except Failed as reason:
        cell.status, cell.reason = 'fail', str(reason)
        return False


def measure(launchers, rounds, say, ops=OPS, sizes=SIZES):
    """`launchers`: system -> function that starts its process. Every system does each collective in turn, in every round; the first
    round warms up and does not count."""
    running, cells = {}, []
    for peer, launch in launchers.items():
        try:
            running[peer] = launch()
        except Skipped as reason:
            say(f'SKIP collectives of {peer}: {reason}')
            cells += [Cell(peer, op, size, status='skip', reason=str(reason)) for op in ops for size in sizes]
    table = {(peer, op, size): Cell(peer, op, size) for peer in running for op in ops for size in sizes}
    dead = set()
    for number in range(rounds + 1):
        for op in ops:
            for size in sizes:
                for peer in running:
                    cell = table[peer, op, size]
                    if peer in dead and cell.status == 'ok':
                        cell.status, cell.reason = 'fail', 'its process died before'
                    if cell.status == 'ok' and not ask(running[peer], cell):
                        dead.add(peer)
        if number == 0:
            for cell in table.values():
                cell.seconds.clear()
                cell.floor.clear()
    for process in running.values():
        process.close()
    cells += table.values()
    for peer, op, reason in sorted({(c.peer, c.op, c.reason) for c in table.values() if c.status != 'ok'}):
        say(f'{"FAIL" if peer in dead else "SKIP"} {op} of {peer}: {reason}')
    return cells
