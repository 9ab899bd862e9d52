#!/usr/bin/env bash
# make demo: train on the bundled phrasebook, translate sentences that were not in it, score them.
# $1 is the folder of the installed commands.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seq2seq="${1:-.venv/bin}/seq2seq"
corpus=data/phrasebook_en_de
run=outputs/demo/latest

say() { printf '\n== %s\n' "$1" >&2; }

say "Training on $corpus (a few minutes; progress follows)"
rm -rf "$run"
"$seq2seq" train experiment=demo "hydra.run.dir=$run"

say "Translating $corpus/test.en, 500 sentences that were not in the training text"
"$seq2seq" translate "$run/bundle" "$corpus/test.en" -o "$run/test.de"

say "Scoring the translations"
"$seq2seq" evaluate --hypothesis "$run/test.de" --reference "$corpus/test.de"

say "Five of them: English, translation, reference"
paste -d '\n' "$corpus/test.en" "$run/test.de" "$corpus/test.de" |
    awk '{ row = int((NR - 1) / 3) } row % 100 == 49 { print; if (NR % 3 == 0) print "" }'

cat <<END
The model is in $run/bundle. Try it:
  echo 'The train to Salzburg leaves at half past nine.' | $seq2seq translate $run/bundle
With two text files of your own, line n of one translating line n of the other:
  $seq2seq data check my.en my.de
  $seq2seq train data.train_source=my.en data.train_target=my.de trainer.max_minutes=30
  $seq2seq train --help
END
