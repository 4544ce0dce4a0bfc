"""A measured process: it waits on its standard input, does what a line asks and answers with one line of JSON."""
import json
import os
import select
import signal
import subprocess
import time


class Skipped(Exception):
    """The system, or this mode of it, is not to be had here."""


class Failed(Exception):
    """The process died, hung or answered nonsense."""


def last_line(path):
    with open(path, errors='replace') as log:
        lines = [line.strip() for line in log if line.strip()]
    return lines[-1][:300] if lines else 'no output'


class Process:
    """Requests: `steps N`, `collective OP BYTES COUNT`, `quit`. Answers: an object, with "skip" when there is no such thing."""

    def __init__(self, name, command, environment, log, deadline=1800):
        self.name, self.log, self.deadline = name, log, deadline
        self.started = time.perf_counter()
        with open(log, 'w') as errors:
            self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                                          env={**os.environ, **environment}, start_new_session=True)

    def request(self, text):
        try:
            self.child.stdin.write((text + '\n').encode())
            self.child.stdin.flush()
        except OSError:
            raise Failed(self.cause())
        line = self._line()
        try:
            answer = json.loads(line)
        except ValueError:
            raise Failed(f'answered {line[:200]!r} to "{text}"')
        if 'skip' in answer:
            raise Skipped(answer['skip'])
        return answer

    def _line(self):
        end, line = time.monotonic() + self.deadline, b''
        while not line.endswith(b'\n'):
            ready, _, _ = select.select([self.child.stdout], [], [], max(0, end - time.monotonic()))
            if not ready:
                self.kill()
                raise Failed(f'no answer in {self.deadline} s')
            part = os.read(self.child.stdout.fileno(), 1 << 16)
            if not part:
                raise Failed(self.cause())
            line += part
        return line.decode(errors='replace')

    def cause(self):
        try:
            code = self.child.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()
            return f'closed its output; {last_line(self.log)}'
        return f'exit code {code}; {last_line(self.log)}'

    def peak_bytes(self):
        """Peak resident memory, summed over the processes of its session."""
        total = 0
        for entry in os.listdir('/proc'):
            if not entry.isdigit():
                continue
            try:
                with open(f'/proc/{entry}/stat') as stat:
                    session = int(stat.read().rsplit(')', 1)[1].split()[3])
                if session != self.child.pid:
                    continue
                with open(f'/proc/{entry}/status') as status:
                    total += sum(int(line.split()[1]) * 1024 for line in status if line.startswith('VmHWM'))
            except (OSError, IndexError):
                continue  # it ended while we looked
        return total

    def kill(self):
        try:
            os.killpg(self.child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.child.wait()

    def close(self):
        try:
            self.child.stdin.write(b'quit\n')
            self.child.stdin.close()
        except OSError:
            pass
        try:
            self.child.wait(20)
        except subprocess.TimeoutExpired:
            pass
        self.kill()
        self.child.stdout.close()
