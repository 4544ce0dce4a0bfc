#!/usr/bin/env python3
"""The command as a user meets it: every sub-command, exit codes, whole messages, interruption.

  cli_test.py COMMAND SOURCE_FOLDER [unittest options]
"""
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

COMMAND, SOURCE = "", pathlib.Path()
COMMANDS = ["train", "bench", "profile", "compare", "eval", "translate", "generate", "score", "explain", "presets", "tokenizer"]

CONFIG = """[model]
preset = "tiny"
[data]
vocab_size = 300
batch_tokens = 256
buckets = 2
max_source_length = 32
max_target_length = 32
[data.train]
files = ["train.en"]
target_files = ["train.fr"]
[data.dev]
files = ["dev.en"]
target_files = ["dev.fr"]
[data.test]
files = ["test.en"]
target_files = ["test.fr"]
[train]
output = "run"
steps = 20
eval_every = 10
checkpoint_every = 10
"""
SCHEDULE = 'optimizer.schedule="0.001"'  # does not depend on the number of steps


def tessera(*arguments, cwd=None, stdin="", timeout=120, environment=None):
    return subprocess.run([COMMAND, *map(str, arguments)], cwd=cwd, input=stdin, text=True, capture_output=True, timeout=timeout,
                          env={**os.environ, **(environment or {})})


def write_corpus(folder):
    """Sentences of a few words, and the same words spelled backwards as their translations."""
    words = "the a file disk user was is found not open read write small large new old list in and name keyboard package printer".split()
    draw = random.Random(1)
    for split, lines in (("train", 400), ("dev", 20), ("test", 20)):
        sentences = [[draw.choice(words) for _ in range(draw.randint(3, 9))] for _ in range(lines)]
        (folder / f"{split}.en").write_text("".join(" ".join(s) + "\n" for s in sentences))
        (folder / f"{split}.fr").write_text("".join(" ".join(w[::-1] for w in s) + "\n" for s in sentences))
    (folder / "tiny.toml").write_text(CONFIG)


class Help(unittest.TestCase):
    def test_every_command_and_option_is_explained(self):
        manual = (SOURCE / "docs" / "cli.md").read_text()
        top = tessera("--help")
        self.assertEqual(top.returncode, 0)
        listed = re.findall(r"^  ([a-z]+) {2,}\S", top.stdout.split("Subcommands:")[1].split("First steps:")[0], re.M)
        self.assertEqual(sorted(listed), sorted(COMMANDS))
        pages = {name: tessera(name, "--help") for name in COMMANDS}
        pages.update({f"tokenizer {action}": tessera("tokenizer", action, "--help") for action in ("train", "encode", "decode", "info")})
        for name, page in pages.items():
            self.assertEqual(page.returncode, 0, name)
            self.assertIn(f"tessera {name}", manual)
            for option in re.findall(r"^  (?:-\w,)?(--[a-z-]+)", page.stdout, re.M):
                self.assertIn(f"`{option}`", manual, f"docs/cli.md does not mention {option} of {name}")
        # Nor does the manual know options that are not there.
        known = {option for page in [top, *pages.values()] for option in re.findall(r"--[a-z][a-z-]*", page.stdout)}
        self.assertLessEqual(set(re.findall(r"`(--[a-z-]+)`", manual)), known)

    def test_programs_in_the_pages_are_those_of_the_golden_files(self):
        text = (SOURCE / "docs" / "lowering.md").read_text()
        blocks = re.findall(r"```golden (\w+)\n(.*?)```", text, re.S)
        self.assertGreater(len(blocks), 8)
        for name, quoted in blocks:
            golden = (SOURCE / "tests" / "golden" / f"{name}.txt").read_text().splitlines()
            for line in quoted.splitlines():
                self.assertIn(line, golden, f"docs/lowering.md quotes {name}")

    def test_version(self):
        self.assertEqual(tessera("--version").stdout, "tessera 0.1.0\n")


class Inspection(unittest.TestCase):
    def test_presets_are_the_papers(self):
        presets = {p["name"]: p for p in json.loads(tessera("presets", "--json").stdout)}
        paper = {"lm": ["0.143", "0.218", "0.369", "0.671", "1.275", "2.483", "4.899"],
                 "mt": ["0.155", "0.244", "0.420", "0.772", "1.477", "2.886"]}
        table = tessera("presets").stdout
        for kind, sizes in paper.items():
            for size in sizes:
                preset = presets[f"{kind}_{size}b"]
                self.assertEqual(f"{preset['parameters'] / 1e9:.3f}", size)
                self.assertRegex(table, rf"(?m)^{kind}_{size}b .* {preset['parameters']} +{size} ")
        largest = presets["lm_4.899b"]
        self.assertEqual(largest["feed_forward"], 6 * 2 * 1024 * largest["d_ff"])
        self.assertEqual(largest["attention"], 6 * 4 * 1024 * largest["heads"] * largest["d_kv"])

    def test_explain_of_the_largest_model(self):
        begin = time.monotonic()
        result = tessera("explain", "--preset", "lm_4.899b", "--json")
        self.assertLess(time.monotonic() - begin, 10)
        explained = json.loads(result.stdout)
        self.assertEqual(set(explained), {"mesh", "ranks", "layout", "steps", "collectives", "totals", "memory", "remarks"})
        self.assertTrue(explained["collectives"])
        for collective in explained["collectives"]:
            self.assertTrue(collective["reason"], collective)
            self.assertTrue(collective["source"], collective)

    def test_explain_shows_a_collective_with_its_line(self):
        result = tessera("explain", SOURCE / "configs/tiny.toml", "--mesh", "rows:2", "--layout", "batch:rows", "--program")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("start all_reduce sum over rows of batch", result.stdout)
        alone = tessera("explain", SOURCE / "configs/tiny.toml", "--program")
        self.assertNotIn("start ", alone.stdout)

    def test_explain_shows_memory_by_class(self):
        arguments = ["explain", SOURCE / "configs/tiny.toml", "--mesh", "rows:2", "--layout", "batch:rows;slots.*:rows"]
        memory = json.loads(tessera(*arguments, "--json").stdout)["memory"]
        names = ["parameters", "slots", "gradients", "activations", "buffers", "unused"]
        classes = memory["classes"]
        self.assertEqual(list(classes), names)
        arena = sum(classes[name]["rank"] for name in names[2:])
        self.assertEqual(arena, memory["arena_bytes"])
        self.assertEqual(sum(classes[name]["process"] for name in names[2:]), 2 * arena)
        self.assertEqual(classes["parameters"]["process"], classes["parameters"]["rank"])
        self.assertEqual(classes["slots"]["process"], 2 * classes["parameters"]["process"])  # of Adam
        self.assertLess(classes["slots"]["rank"], classes["slots"]["process"])
        for value in memory["peak_values"]:
            self.assertIn(value["class"], names)
        text = tessera(*arguments).stdout
        self.assertIn("Memory of a rank at the peak, ", text)
        for name in names:
            self.assertRegex(text, rf"(?m)^  {name} +\d+(\.\d)? [KM]?i?B +\d+(\.\d)? [KM]?i?B$")
        self.assertRegex(text, r"Largest values at the peak:\n  bytes +class +value +type +placement +source\n")


class Mistakes(unittest.TestCase):
    """Exit code 64, the whole message on standard error, nothing written."""

    def check(self, arguments, message, code=64):
        with tempfile.TemporaryDirectory() as folder:
            write_corpus(pathlib.Path(folder))
            before = sorted(pathlib.Path(folder).rglob("*"))
            result = tessera(*arguments, cwd=folder)
            self.assertEqual((result.returncode, result.stdout, result.stderr), (code, "", message + "\n"))
            self.assertEqual(sorted(pathlib.Path(folder).rglob("*")), before)

    def test_command_line(self):
        more = "\nRun with --help for more information."
        self.check(["train", "tiny.toml", "--stepz", "3"], "The following arguments were not expected: 3 --stepz" + more)
        self.check([], "A subcommand is required" + more)
        self.check(["trian", "tiny.toml"], "tessera: there is no command 'trian'; did you mean 'train'?")
        self.check(["frobnicate"], "tessera: there is no command 'frobnicate'; `tessera --help` lists them")
        self.check(["train", "tiny.toml", "--steps", "-3"], "--steps: '-3' is no whole number of 0 or more" + more)
        self.check(["compare", "tiny.toml", "--steps", "two"], "--steps: 'two' is no whole number of 1 or more" + more)
        self.check(["train", "tiny.toml", "--seed", "1.5"], "--seed: '1.5' is no whole number of 0 or more" + more)
        self.check(["translate"], "run is required" + more)

    def test_configuration(self):
        self.check(["train", "tiny.toml", "--set", "train.stepz=3"],
                   "tessera: --set train.stepz=3: train.stepz is no key of [train]; did you mean 'steps'?")
        self.check(["train", "none.toml"], "tessera: cannot read configuration 'none.toml': No such file or directory")
        self.check(["train"], "tessera: give a configuration file, or --preset NAME (`tessera presets` lists them)")
        self.check(["explain", "tiny.toml", "--preset", "tiny"],
                   "tessera: give a configuration file or --preset, not both ('tiny.toml' and 'tiny')")

    def test_layout(self):
        self.check(["explain", "tiny.toml", "--mesh", "rows:2", "--layout", "bach:rows"],
                   "tessera: layout: rule 'bach:rows': no tensor has a dimension 'bach'; did you mean 'batch'? "
                   "(a trailing '?' makes a rule optional)")

    def test_data(self):
        self.check(["translate", "none"],
                   "tessera: 'none' is no run folder: it holds no config.resolved.toml; run 'tessera train' first", 65)


class Run(unittest.TestCase):
    """One small model, trained once and used by every test of the class."""

    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        write_corpus(cls.folder)
        cls.trained = cls.tessera("train", "tiny.toml")

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @classmethod
    def tessera(cls, *arguments, stdin=""):
        return tessera(*arguments, cwd=cls.folder, stdin=stdin)

    def lines(self, *arguments, stdin=""):
        result = self.tessera(*arguments, stdin=stdin)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.splitlines()

    def test_training_leaves_a_run_folder(self):
        self.assertEqual(self.trained.returncode, 0, self.trained.stderr)
        self.assertIn("step 20/20", self.trained.stderr)
        run = self.folder / "run"
        for name in ("config.resolved.toml", "command.txt", "tokenizer.model", "metrics.jsonl", "checkpoints/step-000000020/MANIFEST.json"):
            self.assertTrue((run / name).is_file(), name)
        losses = [m["train/loss"] for m in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()) if "train/loss" in m]
        self.assertLess(losses[-1], losses[0] - 1)

    def test_resume_on_another_mesh(self):
        # The same 24 steps in one go and, with a stop at 20, on two processors: the same loss.
        whole = self.tessera("train", "tiny.toml", "--steps", 24, "--output", "whole", "--set", SCHEDULE)
        first = self.tessera("train", "tiny.toml", "--steps", 20, "--output", "parts", "--set", SCHEDULE)
        again = self.tessera("train", "tiny.toml", "--steps", 24, "--output", "parts", "--set", SCHEDULE,
                             "--mesh", "rows:2", "--layout", "batch:rows")
        self.assertEqual([whole.returncode, first.returncode, again.returncode], [0, 0, 0], again.stderr)
        self.assertIn("resumed at step 20 from parts/checkpoints/step-000000020", again.stderr)
        last = [json.loads((self.folder / run / "metrics.jsonl").read_text().splitlines()[-1])["dev/loss"] for run in ("whole", "parts")]
        self.assertAlmostEqual(last[0], last[1], delta=1e-4)

    def test_translate_keeps_the_order(self):
        sources = (self.folder / "test.en").read_text().splitlines()
        sources.insert(3, "")
        together = self.lines("translate", "run", "--max-length", 6, "--scores", stdin="\n".join(sources) + "\n")
        backwards = self.lines("translate", "run", "--max-length", 6, "--scores", stdin="\n".join(reversed(sources)) + "\n")
        self.assertEqual(len(together), len(sources))
        self.assertEqual([line.split("\t")[1] for line in together], [line.split("\t")[1] for line in reversed(backwards)])
        self.lines("translate", "run", "--input", "test.en", "--output", "out.fr", "--beam", 2, "--max-length", 6)
        self.assertEqual(len((self.folder / "out.fr").read_text().splitlines()), 20)

    def test_score(self):
        pairs = ["the file\teht elif", "a\ta"]
        together = self.lines("score", "run", stdin="\n".join(pairs) + "\n")
        alone = [self.lines("score", "run", stdin=pair + "\n")[0] for pair in pairs]
        for one, other in zip(together, alone):
            self.assertAlmostEqual(float(one.split("\t")[0]), float(other.split("\t")[0]), places=3)
            self.assertEqual(one.split("\t")[1], other.split("\t")[1])
        self.assertLess(float(together[0].split("\t")[0]), 0)
        wrong = self.tessera("score", "run", stdin="a\tb\nno tab\n")
        self.assertEqual((wrong.returncode, wrong.stderr),
                         (65, "tessera: score: line 2 has no tab; give source<TAB>target for a translation model\n"))

    def test_eval(self):
        text = "\n".join(self.lines("eval", "run", "--split", "dev", "--shuffle"))
        self.assertRegex(text, r"dev loss \d\.\d{4} nats per token, accuracy")
        self.assertIn("with the sources shuffled between sentences", text)
        text = "\n".join(self.lines("eval", "run", "--bleu", "--baselines", "--sentences", 4, "--show", 1, "--out", "hypotheses"))
        self.assertEqual(len(re.findall(r"BLEU\|nrefs:1\|case:mixed\|eff:no\|tok:13a\|smooth:exp\|version:\S+ = \d", text)), 3, text)
        self.assertEqual(len((self.folder / "hypotheses").read_text().splitlines()), 4)
        wrong = self.tessera("eval", "run", "--split", "dve")
        self.assertEqual((wrong.returncode, wrong.stderr), (64, "tessera: there is no split 'dve'; use train, dev or test\n"))

    def test_language_model(self):
        settings = ["--set", "model.preset=tiny_lm", "--set", "data.format=text", "--set", "data.max_target_length=24"]
        for split in ("train", "dev", "test"):
            settings += ["--set", f"data.{split}.files={split}.en", "--set", f"data.{split}.target_files=[]"]
        settings += ["--set", "data.vocab_size=300", "--set", "data.batch_sentences=8", "--steps", 5, "--output", "lm"]
        trained = self.tessera("train", "tiny.toml", *settings)
        self.assertEqual(trained.returncode, 0, trained.stderr)
        arguments = ["generate", "lm", "--method", "sample", "--temperature", 0.8, "--top-k", 20, "--top-p", 0.9, "--max-length", 4]
        alone = self.lines(*arguments, stdin="the file\na disk\n")
        self.assertEqual(len(alone), 2)
        split = ["--mesh", "rows:2;cols:2", "--layout", "batch:rows;heads:cols;vocab:cols"]
        self.assertEqual(self.lines(*arguments, *split, stdin="the file\na disk\n"), alone)
        self.assertRegex(self.lines("score", "lm", stdin="the file\n")[0], r"^-\d+\.\d{6}\t\d+$")

    def test_bench(self):
        self.assertRegex("\n".join(self.lines("bench", "tiny.toml", "--steps", 2)), r"(?i)tokens")
        report = json.loads("\n".join(self.lines("bench", "tiny.toml", "--steps", 3, "--json")))
        self.assertEqual(len(report["seconds"]), 3)
        self.assertEqual(report["step_seconds"], sorted(report["seconds"])[1])
        # The first loss belongs to weights that nothing has updated: that of the first step of a training.
        metrics = map(json.loads, (self.folder / "run" / "metrics.jsonl").read_text().splitlines())
        trained = next(m["train/loss"] for m in metrics if "train/loss" in m)
        self.assertAlmostEqual(report["first_loss"], trained, places=4)
        self.assertGreater(report["first_step_seconds"], report["step_seconds"] / 2)
        self.assertGreater(report["peak_resident_bytes"], report["arena_bytes"])
        self.assertGreaterEqual(report["arena_bytes"], report["liveness_bound"])

    def test_pinned_threads(self):
        for value, code in (("on", 0), ("off", 0), ("maybe", 64)):
            result = tessera("bench", "tiny.toml", "--steps", 1, cwd=self.folder, environment={"TESSERA_PIN": value})
            self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stderr, "tessera: the environment's TESSERA_PIN is 'maybe'; it is on or off\n")

    def test_bench_without_passes(self):
        split = ["--mesh", "rows:2", "--layout", "batch:rows"]
        lines = self.lines("bench", "tiny.toml", "--steps", 2, "--without", "all", *split)
        rows = {line.split()[0]: line.split()[1:] for line in lines[1:]}
        names = re.findall(r"(?m)^\| `([a-z_]+)` \|", (SOURCE / "docs" / "cli.md").read_text().split("| pass |")[1].split("##")[0])
        self.assertEqual(list(rows)[:1 + len(names)], ["nothing", *names])
        whole = [float(number) for number in rows["nothing"]]
        self.assertEqual([whole[1], whole[3]], [1, 1])
        for name in names:
            self.assertEqual(len(rows[name]), 6, lines)
            self.assertGreater(float(rows[name][1]), 0)
        self.assertGreaterEqual(float(rows["in_place"][3]), 1)
        self.assertGreaterEqual(float(rows["delay"][4]), whole[4])
        two = self.lines("bench", "tiny.toml", "--steps", 1, "--without", "views", "--without", "fuse")
        self.assertEqual([line.split()[0] for line in two[1:4]], ["nothing", "views", "fuse"])
        wrong = self.tessera("bench", "tiny.toml", "--without", "fus")
        self.assertEqual((wrong.returncode, wrong.stdout, wrong.stderr),
                         (64, "", "tessera: there is no pass 'fus'; did you mean 'fuse'? (passes that can be left out: "
                                  + ", ".join(names) + ")\n"))

    def test_profile(self):
        for trace, options in (("profile.json", []), ("two.json", ["--trace", "two.json", "--mesh", "rows:2", "--layout", "batch:rows"])):
            text = "\n".join(self.lines("profile", "tiny.toml", "--steps", 4, *options))
            rows = {m[1]: (float(m[2]), float(m[3])) for m in re.finditer(r"(?m)^([a-z -]+?) +(\d+\.\d+) +(\d+\.\d) %", text)}
            step = float(re.search(r"step +(\d+\.\d+) ms", text)[1])
            self.assertEqual(len(rows), 11, text)
            self.assertAlmostEqual(sum(row[0] for name, row in rows.items() if name != "sum"), step, delta=0.02 * step)
            self.assertLessEqual(rows["other"][1], 2)
            manual = (SOURCE / "docs" / "cli.md").read_text()
            for name in rows.keys() - {"sum"}:
                self.assertIn(f"\n| {name} | ", manual)
            self.assertEqual(len(re.findall(r"(?m)^ +\d+\.\d+ +\d+\.\d+ .*\([a-z_]+\.cpp:\d+\)$", text)), 10, text)
            events = [e for e in json.loads((self.folder / trace).read_text())["traceEvents"] if e["ph"] == "X"]
            self.assertEqual({e["tid"] for e in events}, {0, 1} if options else {0})
            self.assertLessEqual({e["cat"] for e in events} - {"host"}, set(rows))

    def test_generate_refuses_a_translation_model(self):
        wrong = self.tessera("generate", "run", stdin="a\n")
        self.assertEqual((wrong.returncode, wrong.stderr), (64, "tessera: 'run' is a translation model; use `tessera translate`\n"))

    def test_tokenizer_round_trip(self):
        for kind in ("unigram", "bpe"):
            self.lines("tokenizer", "train", f"{kind}.model", "train.en", "--vocab", 290, "--kind", kind)
            self.assertIn("290 pieces", self.lines("tokenizer", "info", f"{kind}.model")[0])
            text = (self.folder / "test.en").read_text() + "été 😀\n"
            ids = self.lines("tokenizer", "encode", f"{kind}.model", stdin=text)
            self.assertEqual(len(ids), 21)
            self.assertEqual(self.lines("tokenizer", "decode", f"{kind}.model", stdin="\n".join(ids) + "\n"), text.splitlines())

    def test_compare(self):
        result = self.tessera("compare", "tiny.toml", "--steps", 3, "--row", "|", "--row", "rows:2;cols:2|batch:rows;heads:cols")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("all 2 rows give the same losses", result.stdout)
        rows = json.loads("\n".join(self.lines("compare", "tiny.toml", "--steps", 2, "--json", "--row", "|", "--row", "rows:3|batch:rows")))
        self.assertEqual(rows[0]["collectives"], {})
        self.assertGreater(rows[1]["collectives"]["all_reduce"], 0)
        self.assertEqual(list(rows[1]["bytes_per_axis"]), ["rows"])

    def test_interrupt_saves_and_stops(self):
        process = subprocess.Popen([COMMAND, "train", "tiny.toml", "--steps", "1000000", "--output", "stopped", "--set", "train.eval_every=0",
                                    "--set", "train.checkpoint_every=0"], cwd=self.folder, text=True, stderr=subprocess.PIPE)
        for line in process.stderr:
            if line.startswith("step 10/"):
                break
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 75, rest)
        saved = list((self.folder / "stopped" / "checkpoints").glob("step-*/MANIFEST.json"))
        self.assertEqual(len(saved), 1, rest)
        step = json.loads(saved[0].read_text())["step"]
        self.assertGreaterEqual(step, 10)
        again = self.tessera("train", "tiny.toml", "--steps", step + 2, "--output", "stopped")
        self.assertIn(f"resumed at step {step} from", again.stderr)
        self.assertEqual(again.returncode, 0, again.stderr)


if __name__ == "__main__":
    COMMAND, SOURCE = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2]).resolve()
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
