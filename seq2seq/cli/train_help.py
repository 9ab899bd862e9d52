"""What `seq2seq train --help` says."""

import textwrap

from seq2seq.cli.options import explain

HEADER = """\
Usage: seq2seq train [NAME=VALUE]... [GROUP=CHOICE]... [HYDRA FLAGS]

Trains a Transformer on two text files, line n of one translating line n of the other: an encoder and a decoder
(model=transformer_*), or one stack that reads both in a row (model=gpt_*, llama_*, qwen*). With data=text it is a
language model of one text. The run's folder is outputs/<name>/<date>_<time>/; it ends up with checkpoints, metrics.csv
and bundle/, which `seq2seq translate` takes, or `seq2seq generate`.

Examples:
  seq2seq train data.train_source=my.de data.train_target=my.en trainer.max_minutes=30
  seq2seq train data=folder data.dir=corpus data.source_lang=de data.target_lang=en model=transformer_base
  seq2seq train data.train_source=my.de data.train_target=my.en model=gpt_small
  seq2seq train data=text data.train_text=my.txt model=gpt_small
  seq2seq train data.train_source=my.de data.train_target=my.en init.from=BUNDLE optim.lr_factor=0.1
  seq2seq train experiment=multi30k_de_en data.dir=multi30k
  seq2seq train --plan experiment=demo           says what a run would be, with its time, and trains nothing
  seq2seq train --multirun model.dropout=0.1,0.3 experiment=demo
  seq2seq train --multirun hydra/sweeper=optuna hydra.sweeper.direction=maximize hydra.sweeper.n_trials=20 \\
      'model.dropout=interval(0.1,0.4)' experiment=demo
  seq2seq train trainer=ddp trainer.devices=4 experiment=multi30k_de_en data.dir=multi30k
  torchrun --nnodes=2 --rdzv-endpoint=HOST:PORT --nproc-per-node=4 -m seq2seq train trainer=ddp trainer.devices=4 \\
      trainer.num_nodes=2 ...                    several machines; srun --ntasks-per-node=4 seq2seq train ... too
  seq2seq train --cfg job experiment=demo        shows the composed options and trains nothing
"""

FOOTER = """\
Flags: --help, --plan (with --json: for programs), --cfg job, --multirun, --config-dir FOLDER (your own YAML files
beside ours), --config-name NAME, --info; `seq2seq train --hydra-help` lists all. Relative paths start
where the command is typed.

Exit codes: 0 the run is done; 1 it could not be, and the last line says why; 2 wrong flags; 130, 143 and 129 it was
stopped by Ctrl-C, SIGTERM or a hang-up, and resume=RUN/checkpoints/last.ckpt goes on.
"""


def help_of_hydra() -> dict[str, str]:
    """The text, in the form that Hydra takes it."""
    rows = [
        textwrap.fill(text, width=120, initial_indent=f"  {f'{name}={default}':<40} ", subsequent_indent=" " * 43)
        for name, default, text in explain()
    ]
    parts = [
        HEADER,
        "Groups, choose with GROUP=CHOICE:",
        "$APP_CONFIG_GROUPS",
        "Options and their defaults (a group's choice may set others; --cfg job shows what a run would get):",
        *rows,
        "",
        FOOTER,
    ]
    return {"app_name": "seq2seq train", "header": "", "footer": "", "template": "\n".join(parts)}
