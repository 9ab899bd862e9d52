"""`seq2seq train`: a trained model from the options that Hydra composes."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seq2seq import __version__
from seq2seq.cli import UsageError, ranks
from seq2seq.cli.options import check_overrides, hint, schema
from seq2seq.cli.train_help import help_of_hydra
from seq2seq.config import Task, TrainConfig, from_dict

if TYPE_CHECKING:
    from argparse import Namespace

    from omegaconf import DictConfig


def conf_dir() -> Path:
    """The folder of the configuration files: inside an installed package, or at the top of a checkout."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent / "conf"


def register() -> None:
    """Tell Hydra the options' names, types and defaults, and the text of `--help`."""
    from hydra.core.config_store import ConfigStore
    from omegaconf import OmegaConf

    def required(name: str) -> None:
        raise ValueError(f"option '{name}' is missing; give {name}=...")

    # for a group that needs an option which has a default elsewhere: OmegaConf ignores a ??? that comes second
    OmegaConf.register_new_resolver("required", required, replace=True)
    store = ConfigStore.instance()
    store.store(name="train_schema", node=schema(TrainConfig))
    store.store(group="hydra/help", name="seq2seq", node=help_of_hydra())


def compose(cfg: "DictConfig") -> TrainConfig:
    """The checked options from what Hydra composed.

    Raises:
        ValueError: for a missing or unknown option, a wrong type, or a failed check.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        missing = sorted(OmegaConf.missing_keys(cfg))
        values = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    except OmegaConfBaseException as error:
        raise ValueError(one_line(error)) from error
    if missing:
        raise ValueError(f"missing options; give {' '.join(f'{name}=...' for name in missing)}")
    assert isinstance(values, dict)
    return from_dict(TrainConfig, {str(name): value for name, value in values.items()})


def run(arguments: Sequence[str]) -> None:
    """Train as Hydra's arguments say; with `--help`, `--cfg` or `--info`, print what they ask for.

    Raises:
        UsageError: for a misspelt name, or a value of the wrong type.
        ValueError: for options that do not fit together, or data that cannot be trained on.
        OSError: for a file that cannot be read or written.
        SystemExit: after Hydra's own flags, and with 130 after an interrupt.
    """
    from hydra._internal.utils import get_args_parser

    from seq2seq.cli import train_plan

    if "--version" in arguments:
        print(f"seq2seq {__version__}")
        return
    if ranks.is_worker():
        ranks.work(_fit)
        return
    if "--plan" in arguments:
        train_plan.plan(arguments)
        return
    parsed = get_args_parser().parse_intermixed_args(list(arguments))
    together = ranks.is_one_of_several() and not (parsed.help or parsed.hydra_help or parsed.cfg or parsed.info)
    if together and ranks.follows():
        ranks.follow(_fit)
        return
    with ranks.leading(together):
        _run(arguments, parsed)


def _run(arguments: Sequence[str], parsed: "Namespace") -> None:
    """Have Hydra compose the options, and train."""
    import hydra
    from hydra.core.hydra_config import HydraConfig

    from seq2seq.cli import multirun

    check_overrides(parsed.overrides, [conf_dir(), *own_folders(parsed)])
    multirun.check_plugins(parsed.overrides)
    register()
    typed = sys.argv
    failures: list[Exception] = []

    def train(cfg: "DictConfig") -> float | None:
        sys.argv = typed
        try:
            return _train(cfg)
        except (ValueError, OSError) as error:
            if ranks.is_one_of_several():  # the others wait for something that never comes: nothing can follow
                print(f"error: {error}", file=sys.stderr, flush=True)
                raise SystemExit(1) from error
            # raised after Hydra, which would print a traceback here; in a --multirun the other jobs still run
            failures.append(error)
            _remove_unused(Path(HydraConfig.get().runtime.output_dir))
            if parsed.multirun:
                print(f"error: job {HydraConfig.get().job.num}: {error}", file=sys.stderr, flush=True)
                multirun.note_failure(error)
        return None

    try:
        # flags first: Hydra itself refuses options on both sides of a flag
        flags = [argument for argument in arguments if argument not in parsed.overrides]
        sys.argv = [typed[0], *flags, *_in_the_same_folder(parsed.overrides)]
        with exceptions_from_hydra():
            hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="train")(train)()
    finally:
        sys.argv = typed
        num_failed = multirun.print_results() if parsed.multirun else 0
    if num_failed:
        raise ValueError(f"{num_failed} of the jobs failed, as said above")
    if failures:
        raise failures[0]


def own_folders(parsed: "Namespace") -> list[Path]:
    """The user's own folders of configuration files.

    Raises:
        UsageError: if one is not there.
    """
    own = [Path(folder) for folder in (parsed.config_dir, parsed.config_path) if folder]
    for folder in own:
        if not folder.is_dir():
            raise UsageError(f"--config-dir {folder}: there is no such folder")
    return own


def _remove_unused(run_dir: Path) -> None:
    """Remove the folder of a run that was refused: one with nothing in it but Hydra's own files."""
    if run_dir.is_dir() and {path.name for path in run_dir.iterdir()} <= {".hydra", "train.log"}:
        shutil.rmtree(run_dir)
        if run_dir.parent.parent == Path.cwd() / "outputs":  # outputs/<name>, made for this run alone
            with suppress(OSError):  # other runs are in it
                run_dir.parent.rmdir()


@contextmanager
def exceptions_from_hydra() -> Iterator[None]:
    """Have Hydra raise instead of printing and exiting, and say what it found in our words."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    before = os.environ.get("HYDRA_FULL_ERROR")
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise UsageError(one_line(error)) from error
    finally:
        if before is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = before


def one_line(error: Exception) -> str:
    """What Hydra or OmegaConf says and of which option, without their internals."""
    from omegaconf.errors import OmegaConfBaseException

    cause = error.__cause__ or error
    text = str(cause).split("\nConfig search path")[0]
    key = getattr(cause, "full_key", None) if isinstance(cause, OmegaConfBaseException) else None
    internals = ("full_key:", "object_type=", "reference_type=")
    lines = [line.strip() for line in text.splitlines()]
    said = " ".join(line for line in lines if line and not line.startswith(internals))
    ours = said.partition(" raised while resolving interpolation: ")[2]
    if ours:
        return ours
    in_a_file = re.search(r"full_key: (\S+)", text)
    if key is None and in_a_file is not None:  # where Hydra says which file, in words of its own
        said = re.sub(r": \w+ raised while composing config:", f": option '{in_a_file[1]}':", said)
        return said + hint(in_a_file[1], said)
    return f"option '{key}': {said}{hint(str(key), said)}" if key else said


def _train(cfg: "DictConfig") -> float | None:
    """Check the options, build what stands in them by `_target_`, train, and print where the bundle is.

    Returns:
        The best value of the monitored metric, which is what a sweeper optimises.
    """
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    from seq2seq.cli import multirun

    config, run_dir = compose(cfg), Path(HydraConfig.get().runtime.output_dir)
    logging = OmegaConf.to_container(HydraConfig.get().job_logging, resolve=True)
    assert isinstance(logging, dict)
    try:
        result = ranks.train(config, run_dir, {str(name): value for name, value in logging.items()}, _fit)
    except SystemExit as ended:
        if isinstance(ended.code, int) and ended.code > 128:
            _tell_how_to_go_on(run_dir)
        raise
    bundle = os.path.relpath(result.bundle)
    typed = shlex.quote(bundle)
    if result.task is Task.language_model:
        print(f"next: seq2seq generate {typed} --prompt TEXT --temperature 0.8", file=sys.stderr, flush=True)
    else:
        print(f"next: seq2seq translate {typed} INPUT -o OUTPUT", file=sys.stderr)
        print(f"      seq2seq evaluate {typed} --source SOURCE --reference REFERENCE", file=sys.stderr, flush=True)
    print(bundle)
    multirun.note_result(config, result)
    return result.best_score


def _fit(config: TrainConfig, run_dir: Path) -> ranks.Outcome:
    """Build what stands in the options by `_target_`, and train in this process."""
    loggers, callbacks = _instantiate("logger", config.logger), _instantiate("callbacks", config.callbacks)
    from seq2seq.training.fit import fit

    try:
        result = fit(config, run_dir, loggers=loggers, callbacks=callbacks)
    except SystemExit as ended:
        if isinstance(ended.__context__, KeyboardInterrupt):  # Lightning has tidied up, and exits with 1
            raise SystemExit(130) from ended
        raise
    return ranks.Outcome(result.bundle, result.steps, result.best_score, result.task)


def _tell_how_to_go_on(run_dir: Path) -> None:
    """Say after an interrupt what to add to the command, if there is anything to go on from."""
    last = Path(os.path.relpath(run_dir / "checkpoints" / "last.ckpt"))
    if last.is_file():
        print(f"interrupted; to go on, type the same command with resume={shlex.quote(str(last))}", file=sys.stderr)


def _in_the_same_folder(overrides: list[str]) -> list[str]:
    """The overrides, and with ``resume=RUN/checkpoints/FILE`` the run's own folder as the place to go on in."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    given = {
        override.key_or_group: override.value() for override in OverridesParser.create().parse_overrides(overrides)
    }
    resume = given.get("resume")
    if not isinstance(resume, str) or "hydra.run.dir" in given:
        return overrides
    run_dir = Path(os.path.normpath(Path(resume, "..", "..")))  # `parent` would not leave the folder we are in
    if not (run_dir / "config.yaml").is_file():
        return overrides
    # Quoted, so that Hydra takes whatever stands in a path as it is.
    escaped = str(run_dir).replace("'", "\\'")
    return [*overrides, f"hydra.run.dir='{escaped}'"]


def _instantiate(group: str, wanted: dict[str, Any]) -> list[Any]:
    """The objects that the user's `_target_`s name.

    Raises:
        ValueError: for an entry without `_target_`, or one that cannot be built.
    """
    from hydra.errors import HydraException
    from hydra.utils import instantiate

    for name, options in wanted.items():
        if not isinstance(options, dict) or "_target_" not in options:
            raise ValueError(f"{group}.{name} has no _target_; give the class, +{group}.{name}._target_=package.Class")
        _check_installed(group, name, str(options["_target_"]))
    try:
        return [instantiate(options) for options in wanted.values()]
    except HydraException as error:
        raise ValueError(f"{group}: {one_line(error)}") from error


_PACKAGES = {"WandbLogger": "wandb", "MLFlowLogger": "mlflow"}
"""What Lightning's loggers need, by the name of their class; the extra of ours that brings it has the same name."""


def _check_installed(group: str, name: str, target: str) -> None:
    """Refuse a logger of a service whose package is not there, before any work."""
    package = _PACKAGES.get(target.rpartition(".")[2])
    if package is not None and sys.modules.get(package) is None and find_spec(package) is None:
        raise ValueError(f"{group}={name} needs the package {package}; pip install 'seq2seq[{package}]'")


def train(
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[NAME=VALUE|GROUP=CHOICE|FLAG]...")] = None,
) -> None:
    """Train a model: options are NAME=VALUE; `seq2seq train --help` lists them."""
    run(arguments or [])
