"""`python -m seq2seq` is the command `seq2seq`."""

from seq2seq.cli.app import main

main()
