#!/usr/bin/env python3
"""The measuring house without any other system: fake peers that agree, disagree, are missing, die or hang. Usage: peers_test.py SOURCE"""
import argparse
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import math
import os
import pathlib
import sys
import tempfile
import unittest
import xml.etree.ElementTree

SOURCE = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(SOURCE / 'benchmarks' / 'peers'))
from driver import collectives, data, drawn, environments, picture, report, rounds  # noqa: E402
from driver.process import Failed, Process, Skipped  # noqa: E402
from driver.settings import MODELS, MODES, Mode, Setting, drawn_model, of_each_mode, settings_for  # noqa: E402

FAKE = SOURCE / 'tests' / 'peers' / 'fake_peer.py'
RATE = ('well', 0, 0.5)  # of the bare products


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.said = pathlib.Path(folder.name), []
        self.diary = self.folder / 'diary'

    def process(self, name, fake, deadline=20):
        if isinstance(fake, Exception):
            raise fake
        words = [str(word) for word in fake]
        environment = {'FAKE_DIARY': str(self.diary), 'FAKE_NAME': name}
        return Process(name, [sys.executable, str(FAKE), *words], environment, str(self.folder / 'log'), deadline)

    def measure(self, fakes, dtype='f32', memory=100, rounds_=3, deadline=20, model='lm', tolerance=None):
        """`fakes`: (system, mode) -> (behaviour, loss, seconds) or an exception that launching raises."""
        settings = [Setting(peer, Mode(mode, mode), model, dtype) for peer, mode in fakes]
        options = argparse.Namespace(memory=memory, ranks=2, screen_rounds=1, rounds=rounds_, steps=2)
        tried, final = rounds.measure(settings, lambda s: self.process(f'{s.peer} {s.mode.name}', fakes[s.peer, s.mode.name], deadline),
                                      lambda: self.process('rate', RATE), options, self.said.append, tolerance or rounds.TOLERANCE[dtype])
        is_drawn = model != 'lm'
        run = {'command': 'run', 'machine': 'm', 'rounds': rounds_, 'ranks': 2, 'versions': ['x 1'], 'collectives': [], 'drawn': int(is_drawn),
               'models': [{'model': model, 'about': 'small, batch 8 x 256', 'unit': 'tokens', 'drawn': is_drawn, 'dtype': dtype, 'tokens': 2048,
                           'tried': tried, 'final': final}]}
        return {r.name: r for r in tried}, {r.name: r for r in final}, run


class Rounds(Case):
    def test_agreeing_systems_are_compared_at_their_best(self):
        tried, final, run = self.measure({('tessera', 'one'): ('well', 10.4, 1.0), ('tessera', 'data'): ('well', 10.4, 0.8),
                                          ('jax', 'one'): ('well', 10.4005, 1.6), ('jax', 'model'): ('well', 10.4, 2.4)})
        self.assertEqual({r.status for r in tried.values()}, {'ok'})
        self.assertEqual(list(final), ['Tessera data', 'JAX one'])
        self.assertEqual(rounds.ratios(final['JAX one'], final['Tessera data']), [2.0, 2.0, 2.0])
        self.assertAlmostEqual(final['Tessera data'].share(), 0.5 / 0.8)
        self.assertEqual(report.counts(run), (4, 0, 0))
        text = report.markdown(run)
        self.assertIn('| JAX | one | 2.00 (2.00-2.00) | 31 % | 1,280 |', text)
        self.assertIn('Speed of Tessera over the best other system, JAX one: **2.00**', text)
        xml.etree.ElementTree.fromstring(picture.draw(run['models'], []))
        json.dumps(report.plain(run))

    def test_all_take_turns_in_every_round(self):
        self.measure({('tessera', 'one'): ('well', 1, 1), ('jax', 'one'): ('well', 1, 1), ('torch', 'eager'): ('well', 1, 1)}, rounds_=3)
        lines = [line.rsplit(' ', 1) for line in self.diary.read_text().splitlines()]
        # Starts (one step each), one round of all; then the same for the best, with three rounds.
        names = ['tessera one', 'jax one', 'torch eager']
        self.assertEqual([name for name, _ in lines[:3]], names)
        self.assertEqual([count for _, count in lines[:3]], ['1', '1', '1'])
        turns = [[name for name, _ in lines[at:at + 4]] for at in (10, 14, 18)]
        self.assertEqual(turns, [['rate', *names], ['rate', *names[1:], names[0]], ['rate', names[2], *names[:2]]])
        self.assertEqual(lines[11][1], '2')

    def test_another_first_loss_fails_loudly(self):
        for dtype, near, far in (('f32', 10.0009, 10.0011), ('bf16', 10.09, 10.11)):
            tried, final, run = self.measure({('tessera', 'one'): ('well', 10, 1), ('jax', 'one'): ('well', near, 1), ('torch', 'eager'): ('well', far, 0.1)}, dtype)
            self.assertEqual([r.status for r in tried.values()], ['ok', 'ok', 'fail'])
            self.assertIn('apart', tried['PyTorch eager'].reason)
            self.assertEqual(list(final), ['Tessera one', 'JAX one'])  # the fastest one does not count
            self.assertTrue(any(line.startswith('FAIL PyTorch eager: first loss') for line in self.said))
            self.assertEqual(report.counts(run), (2, 0, 1))

    def test_a_loss_that_is_no_number_is_no_agreement(self):
        tried, _, _ = self.measure({('tessera', 'one'): ('well', 10, 1), ('jax', 'one'): ('well', math.nan, 1)})
        self.assertEqual(tried['JAX one'].status, 'fail')

    def test_without_the_reference_nobody_passes(self):
        tried, final, run = self.measure({('tessera', 'one'): ('dies at once', 0, 0), ('jax', 'one'): ('well', 10, 1)})
        self.assertEqual([r.status for r in tried.values()], ['fail', 'fail'])
        self.assertEqual((final, report.counts(run)), ({}, (0, 0, 2)))
        self.assertIn('no first loss to compare with', report.markdown(run))

    def test_another_setting_of_the_reference_takes_its_place(self):
        tried, final, _ = self.measure({('tessera', 'one'): ('dies at once', 0, 0), ('tessera', 'data'): ('well', 10, 1), ('jax', 'one'): ('well', 10, 1)})
        self.assertEqual([r.status for r in tried.values()], ['fail', 'ok', 'ok'])
        self.assertEqual(list(final), ['Tessera data', 'JAX one'])

    def test_what_is_missing_is_skipped_with_its_reason(self):
        tried, final, run = self.measure({('tessera', 'one'): ('well', 10, 1), ('jax', 'one'): Skipped('pip install failed: no network'),
                                          ('torch', 'eager'): ('has no such mode', 10, 1)})
        self.assertEqual([r.status for r in tried.values()], ['ok', 'skip', 'skip'])
        self.assertIn('SKIP JAX one: pip install failed: no network', self.said)
        self.assertIn('SKIP PyTorch eager: no bf16 on this processor', self.said)
        self.assertEqual(report.counts(run), (1, 2, 0))
        self.assertIn('SKIP: pip install failed: no network', report.markdown(run))
        xml.etree.ElementTree.fromstring(picture.draw(run['models'], []))

    def test_whoever_dies_or_mumbles_fails_and_the_others_go_on(self):
        tried, final, run = self.measure({('tessera', 'one'): ('well', 10, 1), ('jax', 'one'): ('dies at once', 10, 1), ('jax', 'data'): ('mumbles', 10, 1),
                                          ('torch', 'eager'): ('dies later', 10, 1)})
        self.assertEqual([r.status for r in tried.values()], ['ok', 'fail', 'fail', 'fail'])
        self.assertEqual(tried['JAX one'].reason, 'exit code 1; fake: no such device')
        self.assertIn("answered 'hello", tried['JAX data'].reason)
        self.assertEqual(tried['PyTorch eager'].reason, 'exit code 9; fake: killed for its memory')
        self.assertEqual(len(final['Tessera one'].rounds), 3)
        self.assertEqual(report.counts(run)[2], 3)

    def test_whoever_hangs_is_ended(self):
        tried, _, _ = self.measure({('tessera', 'one'): ('well', 10, 1), ('jax', 'one'): ('hangs', 10, 1)}, deadline=1)
        self.assertEqual(tried['JAX one'].reason, 'no answer in 1 s')

    def test_groups_fit_into_memory(self):
        settings = settings_for('lm', MODELS['lm'], 'f32', ['tessera', 'jax', 'torch'])
        parts = rounds.groups(settings, 12, 2)
        self.assertEqual([s for part in parts for s in part], settings)
        self.assertTrue(all(sum(s.memory_gib(2) for s in part) <= 12 for part in parts))
        self.assertGreater(len(parts), 1)
        self.assertEqual([len(part) for part in rounds.groups(settings[:3], 1, 2)], [1, 1, 1])  # too large alone: alone

    def test_peak_memory_is_that_of_the_process(self):
        small, large = self.process('small', ('well', 1, 0)), self.process('large', ('is large', 1, 0))
        for process in (small, large):
            process.request('steps 1')
        self.assertGreater(large.peak_bytes() - small.peak_bytes(), 48 << 20)
        for process in (small, large):
            process.close()
            self.assertIsNotNone(process.child.returncode)


class Drawn(Case):
    """Models drawn by chance: compiled and eager PyTorch both reach the end, losses with dropout are compared loosely."""

    def drawn(self, compiled, eager=1.5, loss=10.3):
        return self.measure({('tessera', 'one'): ('well', 10, 1.0), ('tessera', 'data'): ('well', 10, 0.8), ('torch', 'eager'): ('well', 10, eager),
                             ('torch', 'compile'): ('well', loss, compiled), ('torch', 'compile+tcmalloc'): ('well', 10, compiled + 1)},
                            model='drawn_0', tolerance=rounds.DROPOUT_TOLERANCE)

    def test_the_best_of_each_kind_is_in_the_table(self):
        _, final, run = self.drawn(compiled=1.0)
        self.assertEqual(list(final), ['Tessera data', 'PyTorch eager', 'PyTorch compile'])
        text = report.markdown(run)
        self.assertIn('| small | 8 x 256 | data | 1.25 (1.25-1.25) | 1.88 (1.88-1.88) | 1.25 |', text)
        self.assertIn('1 of 1 models were run; 1 at least 1.2 times as fast as compiled PyTorch, 1 wanted.', text)

    def test_one_in_four_must_be_fast(self):
        fast, slow = (self.drawn(seconds)[2]['models'][0] for seconds in (1.0, 0.9))
        self.assertEqual(report.drawn_verdict([fast, slow, slow, slow], 4), (1, 1))
        self.assertEqual(report.drawn_verdict([slow] * 12, 12), (0, 3))
        self.assertEqual(report.drawn_verdict([fast] * 2, 12), (2, 3))  # the others were lost

    def test_what_was_lost_has_its_reason_and_is_not_fast(self):
        tried, final, run = self.drawn(compiled=1.0, loss=12)  # and the other compiled setting takes its place
        self.assertEqual(tried['PyTorch compile'].status, 'fail')
        self.assertIn('PyTorch compile+tcmalloc', final)
        _, _, run = self.measure({('tessera', 'one'): ('well', 10, 1), ('torch', 'eager'): ('well', 10, 2), ('torch', 'compile'): ('has no such mode', 10, 2)},
                                 model='drawn_0')
        self.assertIn('| one | SKIP: no bf16 on this processor | 2.00 (2.00-2.00) | 2.00 |', report.markdown(run))
        self.assertEqual(report.drawn_verdict(run['models'], 1), (0, 1))

    def test_first_losses_without_dropout(self):
        fakes = {'one': ('well', 10, 0), 'eager': ('well', 10.0005, 0), 'compile': ('well', 10.002, 0)}
        settings = [Setting('tessera' if mode == 'one' else 'torch', Mode(mode, mode), 'drawn_0', 'f32') for mode in fakes]
        results = rounds.first_losses(settings, lambda s: self.process(s.name, fakes[s.mode.name]), 1e-4, self.said.append)
        self.assertEqual([r.status for r in results], ['ok', 'ok', 'fail'])
        job = data.without_dropout({'model': 'drawn_0', 'set': ['data.pack=false']})
        self.assertEqual((job['set'], job['changes']), (['data.pack=false', 'model.dropout=0.0'], {'dropout': 0}))

    def test_a_seed_draws_the_same_models(self):
        configs = [drawn.draw(11, number, 150) for number in range(12)]
        self.assertEqual(configs, [drawn.draw(11, number, 150) for number in range(12)])
        self.assertNotEqual(configs, [drawn.draw(12, number, 150) for number in range(12)])
        self.assertEqual(drawn.about(configs[0]), '4 x 768, 8 x 96, d_ff 1365 swish*linear, vocab 32000 tied, learned, adafactor')
        self.assertIn('activation = ["swish", "linear"]\n', drawn.toml(configs[0]))

    def test_drawn_models_are_trained_by_adam_in_two_systems(self):
        model = drawn_model(11, 0, 150)
        self.assertEqual(model.config['optimizer']['kind'], 'adam')
        settings = settings_for('drawn_0', model, 'f32', ['tessera', 'jax', 'torch'])
        self.assertEqual([s.kind for s in settings], ['Tessera'] * 2 + ['PyTorch eager', 'PyTorch compile'] * 2)
        self.assertTrue(all(1 < s.memory < 8 for s in settings))
        self.assertEqual([s.mode.name for s in of_each_mode(settings)], ['one', 'data', 'eager', 'compile'])
        self.assertEqual([s.mode.name for s in of_each_mode(settings_for('drawn_0', model, 'f32', ['torch'], ['compile+tcmalloc']))], ['compile+tcmalloc'])


class Collectives(Case):
    def test_turns_and_reasons(self):
        def lost():
            raise Skipped('mpicc is not installed')
        launchers = {'tessera': lambda: self.process('tessera', ('well', 0, 0.001)), 'jax': lambda: self.process('jax', ('has no all_to_all', 0, 0.002)),
                     'torch': lambda: self.process('torch', ('dies at once', 0, 0)), 'mpi': lost}
        cells = collectives.measure(launchers, 2, self.said.append, sizes=(1024, 1 << 20))
        by = {(c.peer, c.op, c.size): c for c in cells}
        self.assertEqual(len(by), 4 * 4 * 2)
        self.assertEqual(by['tessera', 'all_reduce', 1024].seconds, [0.001, 0.001])  # the first round warms up
        self.assertAlmostEqual(by['jax', 'all_gather', 1 << 20].gigabytes(), (1 << 20) / 0.002 / 1e9)
        self.assertEqual((by['jax', 'all_to_all', 1024].status, by['mpi', 'all_reduce', 1024].status), ('skip', 'skip'))
        self.assertEqual({c.status for c in cells if c.peer == 'torch'}, {'fail'})
        self.assertIn('SKIP collectives of mpi: mpicc is not installed', self.said)
        self.assertIn('SKIP all_to_all of jax: no all_to_all', self.said)
        self.assertTrue(any(line.startswith('FAIL all_reduce of torch') for line in self.said))
        for cell in cells:
            if cell.peer == 'tessera':
                cell.floor = [0.0005, 0.0005]
        text = '\n'.join(report.collectives_section(cells, 2))
        self.assertIn('| all_reduce | 1 KiB | 0.00102 | 50 % | 0.000512 | FAIL | SKIP |', text)
        xml.etree.ElementTree.fromstring(picture.draw([], cells))


class Environments(Case):
    def test_an_environment_that_cannot_be_made_is_skipped(self):
        requirements = self.folder / 'requirements.txt'
        requirements.write_text('./no_such_package_here\n')
        with self.assertRaisesRegex(Skipped, 'pip install failed: .*no_such_package_here'):
            environments.python_of('jax', str(requirements), str(self.folder / 'venv'), self.said.append)

    def test_an_environment_is_made_once(self):
        requirements = self.folder / 'requirements.txt'
        requirements.write_text('')
        for _ in range(2):
            python = environments.python_of('jax', str(requirements), str(self.folder / 'venv'), self.said.append)
        self.assertTrue(os.access(python, os.X_OK))
        self.assertEqual(len(self.said), 1)

    def test_a_library_that_is_not_there(self):
        with self.assertRaises(Skipped):
            environments.library('libno_such_thing.so.1')

    def test_a_command_that_fails_says_its_error(self):
        with self.assertRaisesRegex(Skipped, 'this failed: error: so it is'):
            environments.run_checked([sys.executable, '-c', 'print("error: so it is"); print("bye"); exit(3)'], str(self.folder / 'log'), 'this')


class Command(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        loader = importlib.machinery.SourceFileLoader('peers_run', str(SOURCE / 'benchmarks' / 'peers' / 'run'))
        cls.script = importlib.util.module_from_spec(importlib.util.spec_from_loader('peers_run', loader))
        loader.exec_module(cls.script)

    def test_names_are_checked(self):
        with contextlib.redirect_stderr(io.StringIO()) as errors, self.assertRaises(SystemExit):
            self.script.parse(['--peers', 'tessera,jaxx'])
        self.assertIn("'jaxx' is none of tessera, jax, torch, mesh_tf, mpi", errors.getvalue())
        with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit):
            self.script.parse(['--rounds', '0'])
        self.assertEqual(self.script.parse(['--models', 'lm', '--cores', '0']).ranks, 1)

    def test_every_system_is_pinned_and_explained(self):
        page = (SOURCE / 'benchmarks' / 'peers' / 'README.md').read_text()
        for peer in MODES:
            for mode in MODES[peer]:
                self.assertIn(f'`{mode.name}`', page)
            if peer == 'tessera':
                continue
            self.assertTrue((SOURCE / 'benchmarks' / 'peers' / f'{peer}_peer.py').is_file())
            lines = (SOURCE / 'benchmarks' / 'peers' / 'requirements' / f'{peer}.txt').read_text().split('\n')
            for line in filter(None, lines):
                self.assertRegex(line, r'^[A-Za-z0-9_.-]+==[0-9][A-Za-z0-9.+]*$')


if __name__ == '__main__':
    unittest.main(verbosity=2)
