"""Transformers that translate: trained, understood and run, from two text files to a BLEU score.

One sentence, followed through the package:

1. `corpus.parallel` reads line n of the source file and line n of the target file.
2. `text.tokenizer` turns each into piece ids; EOS (2) closes both.
3. `corpus.batching` puts pairs of similar length into a batch: `src` [B, S], `tgt_in` [B, T] behind BOS, `tgt_out`.
4. `models.encoder` turns `src` into `memory` [B, S, D]: embedding times sqrt(D), sinusoids, N Post-LN blocks.
5. `models.decoder` turns `tgt_in` and `memory` into vectors [B, T, D]: causal self-attention, cross-attention.
6. `models.transformer` projects them onto the vocabulary: `logits` [B, T, V].
7. `training.loss` compares them with `tgt_out`; `training.module` takes the optimiser step.
8. `search.beam` asks the decoder, one step and its cached state at a time, for the best target ids.
9. `translator` turns these back into a line of text, in the order of the input.
10. `evaluation.metrics` compares the lines with the raw references: BLEU, chrF2++, TER.

With `architecture=decoder_only`, `models.decoder_only` takes the place of 4 and 5: one causal stack reads source,
separator and target in a row. Other norms, positions, heads and feed-forward networks are options of the same blocks
(`nn.block`).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seq2seq.translator import Translator

__version__ = "0.1.0"
__all__ = ["__version__", "load"]


def load(path: str, device: str = "auto") -> "Translator":
    """A translator from a bundle folder, as `seq2seq train` writes at the end of a run.

    Args:
        path: The bundle.
        device: "cpu", "cuda", "cuda:1", "mps", or "auto" for a GPU when there is one.

    Raises:
        FileNotFoundError: if there is no bundle at `path`.
        ValueError: if its parts do not fit together or its format is newer than this package.
    """
    from seq2seq.translator import Translator  # importing torch takes seconds: only when a model is asked for

    return Translator.load(path, device=device)
