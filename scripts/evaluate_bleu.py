"""Prints the BLEU line of a file of translations: sacreBLEU's score with its signature.

    python scripts/evaluate_bleu.py HYPOTHESIS REFERENCE [REFERENCE ...]

`seq2seq evaluate` does the same and more (chrF, TER, JSON, models); this is for shell scripts that want one line.
"""

import argparse
import sys

from seq2seq.evaluation.metrics import corpus_scores
from seq2seq.evaluation.text_checks import tokenized_warning
from seq2seq.text.lines import read_lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hypothesis", help="translations, one a line, plain text")
    parser.add_argument("references", nargs="+", help="raw reference text; each file is one set of references")
    parser.add_argument("--target-lang", help="language code that chooses BLEU's tokenizer (zh, ja, ko)")
    parser.add_argument("--tokenize", help="BLEU's tokenizer, by sacreBLEU's name")
    parser.add_argument("--lowercase", action="store_true", help="ignore case")
    parser.add_argument("--width", type=int, default=2, help="decimals (default: %(default)s)")
    args = parser.parse_args()
    try:
        hypotheses = read_lines(args.hypothesis)
        references = [read_lines(name) for name in args.references]
        (bleu,) = corpus_scores(
            hypotheses,
            references,
            metrics=["bleu"],
            target_lang=args.target_lang,
            tokenize=args.tokenize,
            lowercase=args.lowercase,
        )
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    for name, lines in [(args.hypothesis, hypotheses), *zip(args.references, references, strict=True)]:
        warning = tokenized_warning(name, lines)
        if warning is not None:
            print(f"warning: {warning}", file=sys.stderr)
    print(bleu.line(args.width))


if __name__ == "__main__":
    main()
