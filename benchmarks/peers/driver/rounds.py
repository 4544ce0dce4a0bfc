"""Starts settings, runs them in turns, and compares their first losses."""
import dataclasses
import statistics
import time

from .process import Failed, Skipped

TOLERANCE = {'f32': 1e-4, 'bf16': 1e-2}  # relative, of first losses from the same weights and batch
DROPOUT_TOLERANCE = 5e-2  # the same where each system drops other values


@dataclasses.dataclass
class Result:
    """What was seen of one setting. `status`: ok, skip or fail; only ok counts as passed."""
    setting: object
    status: str = 'ok'
    reason: str = ''
    first_loss: float = None
    first_step_seconds: float = None  # from the command's start to the end of its first step
    peak_bytes: int = 0
    rounds: list = dataclasses.field(default_factory=list)  # seconds of each step of each round
    bare: list = dataclasses.field(default_factory=list)  # of each round: seconds of a step's products alone

    @property
    def name(self):
        return self.setting.name

    def end(self, status, reason):
        self.status, self.reason = status, str(reason)

    def step_seconds(self):
        return statistics.median(s for turn in self.rounds for s in turn)

    def shares(self):
        """Per round: the part of a step's time that its products take alone."""
        return [bare / statistics.median(turn) for bare, turn in zip(self.bare, self.rounds)]

    def share(self):
        return statistics.median(self.shares())


def ratios(result, reference):
    """Per round: time of a step over that of the reference in the same round."""
    return [statistics.median(a) / statistics.median(b) for a, b in zip(result.rounds, reference.rounds)]


def note_of(result):
    if result.status == 'ok':
        return f'{result.name}: first step after {result.first_step_seconds:.1f} s, loss {result.first_loss:.6f}'
    return f'{"SKIP" if result.status == "skip" else "FAIL"} {result.name}: {result.reason}'


def start(setting, launch, say):
    """Launches a setting and runs its first step. Returns (process or None, result)."""
    result, process = Result(setting), None
    try:
        process = launch(setting)
        answer = process.request('steps 1')
        result.first_step_seconds = time.perf_counter() - process.started
        result.first_loss = answer['losses'][0]
    except Skipped as reason:
        result.end('skip', reason)
    except Failed as reason:
        result.end('fail', reason)
    if result.status != 'ok' and process:
        process.close()
        process = None
    say(note_of(result))
    return process, result


def interleave(settings, launch, rate, rounds, steps, say):
    """Starts all settings, then gives each `steps` steps in every round; `rate` does the bare products once a round.

    Whoever begins a round comes last in the next one, so that nobody always runs behind the same neighbour. All but one wait on
    their standard input."""
    pairs = []
    try:
        for setting in settings:
            pairs.append(start(setting, launch, say))
        running = [(process, result) for process, result in pairs if process]
        for number in range(rounds):
            bare = rate.request('steps 1')['seconds'][0]
            turn = number % max(1, len(running))
            for process, result in running[turn:] + running[:turn]:
                take_turn(process, result, steps, bare, say)
        for process, result in running:
            result.peak_bytes = process.peak_bytes() if result.status == 'ok' else 0
    finally:
        for process in [rate, *(process for process, _ in pairs if process)]:
            process.close()
    return [result for _, result in pairs]


def take_turn(process, result, steps, bare, say):
    if result.status != 'ok':
        return
    try:
        result.rounds.append(process.request(f'steps {steps}')['seconds'])
        result.bare.append(bare)
    except (Failed, Skipped) as reason:
        result.end('fail', reason)
        say(note_of(result))


def check_losses(results, tolerance, say):
    """Fails every result whose first loss is not the reference's: that of the first result's system. A reference that did not run
    fails all others: a comparison with nothing is none."""
    system = results[0].setting.peer
    reference = next((r for r in results if r.setting.peer == system and r.status == 'ok'), None)
    for result in results:
        if result.status != 'ok' or result is reference:
            continue
        if reference is None:
            result.end('fail', f'{results[0].name} did not run: no first loss to compare with')
        else:
            # A loss that is not a number is no agreement.
            gap = abs(result.first_loss - reference.first_loss) / abs(reference.first_loss)
            if gap <= tolerance:
                continue
            result.end('fail', f'first loss {result.first_loss:.6f}, {reference.name} has {reference.first_loss:.6f}: '
                               f'{gap:.1e} apart, {tolerance:.0e} allowed')
        say(note_of(result))


def groups(settings, budget_gib, ranks):
    """Splits settings into groups whose processes fit into memory together; one that is larger alone gets its own."""
    parts, room = [], 0.0
    for setting in settings:
        need = setting.memory_gib(ranks)
        if not parts or need > room:
            parts.append([])
            room = budget_gib
        parts[-1].append(setting)
        room -= need
    return parts


def first_losses(settings, launch, tolerance, say):
    """One step of each setting, one process after the other; their results, with first losses compared."""
    results = []
    for setting in settings:
        process, result = start(setting, launch, say)
        if process:
            process.close()
        results.append(result)
    check_losses(results, tolerance, say)
    return results


def best_of(results):
    """Per kind of settings (a system) the one whose step is the shortest beside the bare products of its rounds: groups ran at different times."""
    best = {}
    for result in results:
        if result.status != 'ok' or not result.rounds:
            continue
        kind = result.setting.kind
        if kind not in best or result.share() > best[kind].share():
            best[kind] = result
    return [result.setting for result in best.values()]


def measure(settings, launch, open_rate, options, say, tolerance):
    """Tries all settings in groups, then the best of each kind in one group. Returns (tried, final) results.

    The reference (the first setting) is checked against in both; a system none of whose settings agrees does not reach the end."""
    tried = []
    for number, group in enumerate(groups(settings, options.memory, options.ranks)):
        say(f'group {number + 1}: {", ".join(s.name for s in group)}')
        tried += interleave(group, launch, open_rate(), options.screen_rounds, options.steps, say)
    check_losses(tried, tolerance, say)
    best = best_of(tried)
    say(f'best: {", ".join(s.name for s in best) or "none"}')
    if not best:
        return tried, []
    final = interleave(best, launch, open_rate(), options.rounds, options.steps, say)
    check_losses(final, tolerance, say)
    return tried, final
