"""What `seq2seq translate` refuses before anything is decoded."""

from typing import TYPE_CHECKING

from seq2seq.cli import UsageError
from seq2seq.cli.engines import Backend
from seq2seq.cli.line_progress import LineProgress
from seq2seq.cli.translate_inputs import LineFiles, requests
from seq2seq.cli.translate_job import Job

if TYPE_CHECKING:
    from seq2seq.cli.search_options import SearchOptions


def check_alignment(search: "SearchOptions", job: Job) -> None:
    """Refuse to choose an attention that nothing looks at.

    Raises:
        UsageError: naming the option.
    """
    decode = job.decode
    if decode.alignments or decode.replace_unknown or decode.coverage_penalty:
        return
    for option, given in (("layer", search.alignment_layer), ("head", search.alignment_head)):
        if given is not None:
            raise UsageError(
                f"--alignment-{option} says whose attention aligns, but nothing is aligned; give --alignments, "
                "--format pharaoh, --replace-unknown or --coverage-penalty too"
            )


def check_phrases(job: Job, files: LineFiles) -> None:
    """Refuse phrases where no beam is there whose places could be shared out, whichever line will have them.

    Raises:
        UsageError: naming the option.
    """
    option = "--phrases" if files.phrases is not None else "--terms"
    if (files.phrases is None and files.terms is None) or job.engine.backend is Backend.ctranslate2:
        return
    if job.decode.beam_size == 1:
        how = f"--temperature {job.decode.temperature:g} draws" if job.decode.draws else "--beam 1 is greedy"
        raise UsageError(f"{option} takes a beam whose places are shared out, but {how}; give --beam 10 instead")


def check_backend(job: Job, files: LineFiles) -> None:
    """Refuse what the lines will ask for and the backend does not do, before it begins.

    Raises:
        UsageError: naming the option.
    """
    if job.engine.backend is not Backend.ctranslate2:
        return
    for option, name in {"--phrases": files.phrases, "--terms": files.terms}.items():
        if name is not None:
            raise UsageError(f"{option} is not something that CTranslate2 does; leave --backend ctranslate2 out")
    from seq2seq.translator.ctranslate2_options import penalized

    if files.prefixes is not None and job.decode.beam_size > 1 and penalized(job.decode):
        raise UsageError(
            "--prefixes are left out of the scores that CTranslate2's beam goes by, so that the length penalty would "
            "choose otherwise; give --length-penalty 0 or --beam 1, or leave --backend ctranslate2 out"
        )


def check_lines(job: Job, source: str, files: LineFiles, total: int | None) -> None:
    """Refuse a file with a line that cannot be translated as the options and the other files ask for.

    A line may be too long, or not have room for its prefix; its phrases may be ruled out by other options. Of what can
    be read only once, standard input or a pipe, that is told when the line comes.

    Raises:
        ValueError: with the number of the line.
        FileNotFoundError: for a bundle or a file that is not there.
    """
    if not files.can_be_read_again(source):
        return
    preparation = job.preparation()
    progress = LineProgress(total, wanted=True, doing="checking")
    try:
        for number, request in enumerate(progress.follow(requests(source, files)), start=1):
            prepared = preparation.prepare(number, request, job.decode)
            if job.engine.backend is Backend.ctranslate2:
                from seq2seq.translator.ctranslate2_options import check_part

                for part in prepared.parts:
                    check_part(part, job.decode)
    finally:
        progress.stop()
