"""The corpus: sentences drawn until there are enough, split, and written with a README that describes them."""

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from phrasebook import appointments, counting, people, shopping, town, travel
from phrasebook.dice import Dice, Pair

SEED = 1
SIZES = {"train": 20_000, "valid": 500, "test": 500}
MIN_WORDS, MAX_WORDS = 3, 25
# A word of a held-out sentence is seen in training at least this often.
MIN_SEEN = 3
_NO_PUNCTUATION = str.maketrans("", "", ".,?")
TEMPLATES: tuple[tuple[int, Callable[[Dice], Pair]], ...] = tuple(
    entry for module in (travel, appointments, counting, shopping, town, people) for entry in module.TEMPLATES
)


@dataclass(frozen=True)
class Example:
    """A sentence pair and the name of the template that wrote it."""

    template: str
    pair: Pair


def words(line: str) -> list[str]:
    """The words of a line without punctuation."""
    return line.translate(_NO_PUNCTUATION).split()


def _words_of(pair: Pair) -> set[tuple[str, str]]:
    return {("en", word) for word in words(pair.en)} | {("de", word) for word in words(pair.de)}


def draw(number: int, dice: Dice) -> list[Example]:
    """Different sentences, each template as often as its weight says while it has new ones."""
    lottery = [template for weight, template in TEMPLATES for _ in range(weight)]
    seen_en: set[str] = set()
    seen_de: set[str] = set()
    examples: list[Example] = []
    while len(examples) < number:
        template = dice.pick(lottery)
        pair = template(dice)
        lengths = (len(pair.en.split()), len(pair.de.split()))
        if pair.en in seen_en or pair.de in seen_de or min(lengths) < MIN_WORDS or max(lengths) > MAX_WORDS:
            continue
        seen_en.add(pair.en)
        seen_de.add(pair.de)
        examples.append(Example(template.__name__, pair))
    return examples


def split(examples: list[Example]) -> dict[str, list[Example]]:
    """Examples by split: every template is in all of them, and training has every word of the others."""
    remaining = [(example, _words_of(example.pair)) for example in examples]
    seen = Counter(word for _, parts in remaining for word in parts)
    held_out: dict[str, list[Example]] = {}
    for name in ("valid", "test"):
        quota = _quotas([example for example, _ in remaining], SIZES[name])
        chosen, left = [], []
        for example, parts in remaining:
            if quota[example.template] and all(seen[part] > MIN_SEEN for part in parts):
                quota[example.template] -= 1
                seen.subtract(parts)
                chosen.append(example)
            else:
                left.append((example, parts))
        assert not any(quota.values()), "the corpus has too few sentences without rare words"
        held_out[name], remaining = chosen, left
    return {"train": [example for example, _ in remaining], **held_out}


def _quotas(examples: list[Example], size: int) -> Counter[str]:
    """How many examples of each template a split takes: its share, but at least one."""
    counts = Counter(example.template for example in examples)
    quotas = Counter({name: max(1, count * size // len(examples)) for name, count in counts.items()})
    # Rounding down leaves some places: they go to the most frequent templates, one each.
    for name, _ in counts.most_common(size - quotas.total()):
        quotas[name] += 1
    return quotas


def make(seed: int = SEED) -> dict[str, list[Example]]:
    """The whole corpus for a seed, by split."""
    dice = Dice(seed)
    return split(dice.shuffled(draw(sum(SIZES.values()), dice)))


def write(corpus: dict[str, list[Example]], folder: Path, seed: int) -> None:
    """Writes the six text files and the README that names their seed into a folder, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, examples in corpus.items():
        for side in Pair._fields:
            text = "".join(getattr(example.pair, side) + "\n" for example in examples)
            (folder / f"{name}.{side}").write_bytes(text.encode())
    (folder / "README.md").write_bytes(readme(folder, seed).encode())


def readme(folder: Path, seed: int) -> str:
    """The description of the files in a folder, with their counts and checksums."""
    rows = []
    for name in SIZES:
        for side in Pair._fields:
            path = folder / f"{name}.{side}"
            data = path.read_bytes()
            lines = data.decode().splitlines()
            tokens = [words(line) for line in lines]
            total = sum(map(len, tokens))
            distinct = len({word for line in tokens for word in line})
            digest = hashlib.sha256(data).hexdigest()
            rows.append(
                f"| {path.name} | {len(lines):,} | {total:,} | {distinct:,} | {max(map(len, tokens))} "
                f"| {len(data):,} | `{digest}` |"
            )
    return _README.format(rows="\n".join(rows), templates=len(TEMPLATES), seed=seed, min_seen=MIN_SEEN)


_README = """\
# phrasebook_en_de: a small English-German phrasebook

Correct English and German sentences, written by a seeded grammar: numbers, dates, clock times, prices, distances,
trains, appointments, shopping, directions and everyday actions, in main and subordinate clauses. They are made for
training a translation model within minutes, to learn how it is done or to test that it works. Such a model does not
translate other text: the grammar knows few words, gives every English sentence one German translation, and every
German sentence one English translation.

| file | lines | words | distinct words | longest line (words) | bytes | SHA-256 |
|---|---|---|---|---|---|---|
{rows}

Words are separated by blanks, and counted without punctuation. Line n of a `.en` file and line n of its `.de` file
are a pair. The text is UTF-8 with LF line ends. All {templates} templates of the grammar are in every split; no
sentence of either language is in the corpus twice; every word of `valid` and `test` is in at least {min_seen}
training sentences.

Conventions: "you" is always "Sie"; the English simple past is the German perfect, but the preterite of sein, haben
and modal verbs; "will" is "werden"; the clock has twelve hours ("half past nine", "halb zehn").

Licence: Apache-2.0, as the rest of the project; the text was generated and contains no one else's sentences.

The files, this one included, come from seed {seed} byte by byte:

    python scripts/make_phrasebook.py --out data/phrasebook_en_de
"""
