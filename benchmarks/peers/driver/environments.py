"""Where programs come from: virtual environments with pinned packages, the build, libraries and compilers of the system."""
import ctypes.util
import glob
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

from .process import Skipped


def run_checked(command, log, what):
    """Runs a command with its output in `log`; Skipped with the last line when it fails."""
    with open(log, 'w') as out:
        try:
            code = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL).returncode
        except OSError as error:
            raise Skipped(f'{what}: {error}')
    if code != 0:
        with open(log, errors='replace') as text:
            lines = [line.strip() for line in text if line.strip()]
        errors = [line for line in lines if 'error' in line.lower()] or lines or ['no output']
        raise Skipped(f'{what} failed: {errors[-1][:300]}')


def python_of(peer, requirements, folder, say):
    """The interpreter of the peer's own environment; made, or made anew when its requirements changed. Skipped when it cannot be."""
    with open(requirements, 'rb') as text:
        stamp = hashlib.sha256(text.read() + sys.version.encode()).hexdigest()
    place, python = os.path.join(folder, peer), os.path.join(folder, peer, 'bin', 'python3')
    mark = os.path.join(place, 'requirements.sha256')
    if os.path.exists(mark) and pathlib.Path(mark).read_text() == stamp:
        return python
    say(f'installing {peer} into {place}')
    shutil.rmtree(place, ignore_errors=True)
    os.makedirs(folder, exist_ok=True)
    log = os.path.join(folder, f'{peer}.log')
    run_checked([sys.executable, '-m', 'venv', place], log, 'python3 -m venv')
    run_checked([python, '-m', 'pip', 'install', '--quiet', '--no-input', '-r', requirements], log, 'pip install')
    with open(mark, 'w') as out:
        out.write(stamp)
    return python


def versions_of(python):
    """What is installed, for the report."""
    listed = subprocess.run([python, '-m', 'pip', 'list', '--format=freeze'], capture_output=True, text=True).stdout
    names = ('jax', 'optax', 'torch', 'tensorflow-cpu', 'mesh-tensorflow', 'numpy')
    return [line.replace('==', ' ') for line in listed.split() if line.split('==')[0] in names]


def library(name):
    """The path of a shared library of the system. Skipped when it is not installed."""
    for folder in ('/usr/lib/*-linux-gnu', '/usr/lib64', '/usr/lib', '/usr/local/lib'):
        for path in glob.glob(os.path.join(folder, name)):
            return path
    stem = name.split('.so')[0]
    found = ctypes.util.find_library(stem[3:] if stem.startswith('lib') else stem)
    if found:
        return found
    raise Skipped(f'{name} is not installed')


def mpi_program(source, folder):
    """Command of the MPI program on `ranks` ranks, as a function. Skipped without a compiler and a launcher."""
    for tool in ('mpicc', 'mpirun'):
        if not shutil.which(tool):
            raise Skipped(f'{tool} is not installed')
    program = os.path.join(folder, 'mpi_collectives')
    os.makedirs(folder, exist_ok=True)
    run_checked(['mpicc', '-O2', '-Wall', source, '-o', program], program + '.log', 'mpicc')
    return lambda ranks: ['mpirun', '--allow-run-as-root', '--oversubscribe', '--bind-to', 'none', '-np', str(ranks), program]


def build_tessera(root, jobs, log):
    """Builds the programs that this run needs: (command, peer). Skipped when they do not build."""
    run_checked(['cmake', '-S', root, '--preset', 'release', '-DTESSERA_BENCHMARKS=ON'], log, 'cmake')
    build = os.path.join(root, 'build', 'release')
    run_checked(['cmake', '--build', build, '-j', str(jobs), '--target', 'tessera_command', 'tessera_peer'], log, 'cmake --build')
    return os.path.join(build, 'tessera'), os.path.join(build, 'benchmarks', 'tessera_peer')
