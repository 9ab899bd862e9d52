"""The same as `seq2seq average`: a bundle from the mean of several checkpoints."""

import sys

from seq2seq.cli.app import main

if __name__ == "__main__":
    main(["average", *sys.argv[1:]])
