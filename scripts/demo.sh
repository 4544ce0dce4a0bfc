#!/usr/bin/env bash
# The main job on real text: installs what is missing, builds, fetches an English-French corpus from Debian packages, trains a
# Transformer on a mesh of two ranks, translates, reports BLEU beside two baselines, and trains the same steps under several
# layouts to show that only speed, traffic and memory change.
#
#   scripts/demo.sh [--long | --short]
#
# --long   several epochs and beam search: up to an hour      --short  50 steps, for scripts/test.sh
set -euo pipefail
cd "$(dirname "$0")/.."
length=normal
for option in "$@"; do
  case "$option" in
    --long) length=long ;;
    --short) length=short ;;
    *) sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 64 ;;
  esac
done
say() { printf '\n== %s\n' "$1"; }

say "packages, build"
scripts/install_packages.sh
cmake --preset release >/dev/null
cmake --build --preset release -j "$(nproc)" --target tessera_command | tail -n 1
tessera=build/release/tessera

say "corpus"
scripts/fetch_corpus.sh --pairs-only

start=$SECONDS
config=configs/demo.toml run=runs/demo train_options=() eval_options=(--sentences 1000 --show 10)
case "$length" in
  long) config=configs/demo_long.toml run=runs/demo_long; eval_options=(--show 10) ;;
  short) run=runs/demo_short
    train_options=(--output "$run" --steps 50 --set train.eval_every=25 --set train.eval_batches=2 --set train.checkpoint_every=0)
    eval_options=(--sentences 40 --show 2 --batches 2) ;;
esac

say "training ($config)"
rm -rf "$run"
"$tessera" train "$config" --fresh "${train_options[@]}"

say "test set: loss, loss with shuffled sources, BLEU, baselines, translations"
"$tessera" eval "$run" --shuffle --bleu --baselines --out "$run/test.fr" "${eval_options[@]}" | tee "$run/test.txt"

say "the same training steps under eight layouts"
# Small batches keep it short. Dropout is on: the masks are the same on every mesh. heads=6 over 4 ranks is uneven (1, 2, 1, 2).
steps=20; [ "$length" = short ] && steps=3
"$tessera" compare "$config" --steps "$steps" --set train.output=runs/compare --set "data.tokenizer=$run/tokenizer.model" \
  --set data.batch_tokens=600 --set model.dropout=0.1 --set data.buckets=2 \
  --row '|' \
  --row 'data:2 | batch:data' \
  --row 'model:2 | heads:model;d_ff:model;vocab:model' \
  --row 'rows:2;cols:2 | batch:rows;heads:cols;d_ff:cols;vocab:cols' \
  --row 'data:4 | batch:data;params.*:data;slots.*:data' \
  --row 'data:4 | batch:data;slots.*:data' \
  --row '| | model.heads=6' \
  --row 'model:4 | heads:model;d_ff:model;vocab:model | model.heads=6'
printf '\nThe demo took %d seconds after install and build. The model is in %s; try:\n  echo "The file was not found." | %s translate %s\n' \
  $((SECONDS - start)) "$run" "$tessera" "$run"

if [ "$length" != short ]; then
  python3 - "$run/test.txt" "$length" <<'PY'
import re
import sys
text = open(sys.argv[1]).read()
bleu = {m.group(1): float(m.group(2)) for m in re.finditer(r"^(model|baseline[^:]*): BLEU\|\S+ = ([0-9.]+)", text, re.M)}
loss, shuffled = (float(x) for x in re.findall(r"loss ([0-9.]+) nats", text)[:2])
retrieval = next(v for k, v in bleu.items() if "nearest" in k)
floor, above = (30.0, 12.0) if sys.argv[2] == "long" else (14.0, None)
faults = []
if bleu["model"] < floor:
    faults.append(f"BLEU {bleu['model']} is below the floor of {floor}")
if above is not None and bleu["model"] < retrieval + above:
    faults.append(f"BLEU {bleu['model']} is not {above} above retrieval ({retrieval})")
if shuffled - loss < 0.3:
    faults.append(f"shuffled sources cost only {shuffled - loss:.3f} nats: the model does not read its source")
print("\n".join(faults) or "the floors are reached")
sys.exit(1 if faults else 0)
PY
fi
