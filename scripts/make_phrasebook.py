"""Writes the English-German phrasebook: train, valid and test text files and their README.

    python scripts/make_phrasebook.py --out data/phrasebook_en_de

Needs only the standard library. The grammar is in the folder `phrasebook` beside this file.
"""

import argparse
from pathlib import Path

from phrasebook import corpus


def main() -> None:
    """Reads the command line and writes the files."""
    parser = argparse.ArgumentParser(description="Write the English-German phrasebook corpus.")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to; existing files are replaced")
    parser.add_argument(
        "--seed", type=int, default=corpus.SEED, help="another seed gives other sentences (default: %(default)s)"
    )
    arguments = parser.parse_args()
    corpus.write(corpus.make(arguments.seed), arguments.out, arguments.seed)


if __name__ == "__main__":
    main()
