"""Word order: one clause as an English statement or question and in the German orders (verb second, first, last)."""

from dataclasses import dataclass, replace

from phrasebook.dice import EMPTY, Pair, join
from phrasebook.inflection import THE, Determiner, Verb
from phrasebook.lexicon import BE


@dataclass(frozen=True)
class Subject:
    """Who or what acts.

    Args:
        en: The English subject.
        de: The German subject.
        person: 0 for ich, 1 for er, sie, es, and 2 for wir, Sie and every plural.
        own: The determiner of the subject's own things.
        gender: "m" or "f" for someone whom "he" or "she" can take up, "p" for several, otherwise empty.
    """

    en: str
    de: str
    person: int
    own: Determiner = THE
    gender: str = ""

    @property
    def third(self) -> bool:
        """Whether English verbs take -s."""
        return self.person == 1

    def be(self, past: bool) -> str:
        """The form of "to be"."""
        if past:
            return "were" if self.person == 2 else "was"
        return ("am", "is", "are")[self.person]


@dataclass(frozen=True)
class Mood:
    """How the verb is used: plainly in the present or the past, or after a helping verb.

    English has an auxiliary of its own ("can") or a verb with "do" ("want to"), told apart by `auxiliary`: the
    word that opens a question and stands before "not", and the same for the third person.
    """

    en: tuple[str, str] = ("", "")
    auxiliary: tuple[str, str] = ("", "")
    rest: str = ""
    german: tuple[str, str, str] | None = None


PRESENT, PAST = Mood(auxiliary=("do", "does")), Mood(auxiliary=("did", "did"))
WILL = Mood(("will", "will"), ("will", "will"), "", ("werde", "wird", "werden"))
CAN = Mood(("can", "can"), ("can", "can"), "", ("kann", "kann", "können"))
HAVE_TO = Mood(("have to", "has to"), ("do", "does"), "have to", ("muss", "muss", "müssen"))
SHOULD = Mood(("should", "should"), ("should", "should"), "", ("sollte", "sollte", "sollten"))
WOULD_LIKE = Mood(("would like to", "would like to"), ("would", "would"), "like to", ("möchte", "möchte", "möchten"))
WANT = Mood(("want to", "wants to"), ("do", "does"), "want to", ("will", "will", "wollen"))
COULD = Mood(("could", "could"), ("could", "could"), "", ("konnte", "konnte", "konnten"))
HAD_TO = Mood(("had to", "had to"), ("did", "did"), "have to", ("musste", "musste", "mussten"))
WANTED = Mood(("wanted to", "wanted to"), ("did", "did"), "want to", ("wollte", "wollte", "wollten"))

_HABEN, _SEIN = ("habe", "hat", "haben"), ("bin", "ist", "sind")


@dataclass(frozen=True)
class Predicate:
    """A verb with what belongs to it.

    Args:
        verb: The verb.
        object: The direct or indirect objects; in German they stand before "nicht".
        place: Places, directions and predicatives; in German they stand after "nicht".
        pronoun: A pronoun object, which German puts before the time.
        no_object: The objects of the negated sentence ("einen Mantel" becomes "keinen Mantel"), if that is how
            the sentence is negated.
        negatable: False where neither way of negating sounds right.
    """

    verb: Verb
    object: Pair = EMPTY
    place: Pair = EMPTY
    pronoun: Pair = EMPTY
    no_object: Pair | None = None
    negatable: bool = True

    def english(self, form: str) -> str:
        """A form of the English verb with the pronoun object, which stands before a particle: "pick us up"."""
        head, _, particle = form.partition(" ")
        return join(head, self.pronoun.en, particle) if self.pronoun.en else form


@dataclass(frozen=True)
class Clause:
    """One clause, written out by the methods; `adverb` is one of frequency (often, always)."""

    subject: Subject
    predicate: Predicate
    mood: Mood = PRESENT
    time: Pair = EMPTY
    adverb: Pair = EMPTY
    negated: bool = False

    def statement(self, fronted: bool = False) -> Pair:
        """A main clause; with the time in front if `fronted`, and then the German verb before its subject."""
        if not fronted or not self.time.en:
            return Pair(self.english(), self.main())
        rest = replace(self, time=EMPTY)
        return Pair(f"{self.time.en} {rest.english()}", f"{self.time.de} {rest.inverted()}")

    def question(self) -> Pair:
        """A yes-or-no question, without its mark."""
        assert not self.negated, "negated questions are not written"
        return Pair(self.english_question(), self.inverted())

    def english(self) -> str:
        """The English statement; it is the same after a conjunction."""
        pred, third = self.predicate, self.subject.third
        base = pred.english(pred.verb.en)
        if self.predicate.verb is BE and self.mood in (PRESENT, PAST):
            group = join(self.subject.be(self.mood is PAST), "not" if self.negated else "")
        elif self.negated:
            word = self.mood.auxiliary[third]
            group = join("cannot" if word == "can" else f"{word} not", self.mood.rest, base)
        elif self.mood is PRESENT:
            group = pred.english(pred.verb.en_third) if third else base
        elif self.mood is PAST:
            group = pred.english(pred.verb.en_past)
        else:
            group = join(self.mood.en[third], base)
        return join(self.subject.en, self.adverb.en, group, self._english_tail())

    def english_question(self) -> str:
        """The English yes-or-no question."""
        if self.predicate.verb is BE and self.mood in (PRESENT, PAST):
            return join(self.subject.be(self.mood is PAST), self.subject.en, self._english_tail())
        return join(
            self.mood.auxiliary[self.subject.third],
            self.subject.en,
            self.adverb.en,
            self.mood.rest,
            self.predicate.english(self.predicate.verb.en),
            self._english_tail(),
        )

    def _english_tail(self) -> str:
        pred = self.predicate
        obj = pred.no_object if self.negated and pred.no_object else pred.object
        return join(obj.en, pred.place.en, self.time.en)

    def main(self) -> str:
        """German with the verb second: "Der Zug fährt um neun Uhr ab"."""
        finite, end = self._verb()
        return join(self.subject.de, finite, self._middle(), end)

    def inverted(self) -> str:
        """German with the verb first: a question, or what follows a clause or a time: "(Heute) fährt der Zug ab"."""
        finite, end = self._verb()
        return join(finite, self.subject.de, self._middle(), end)

    def subordinate(self) -> str:
        """German with the verb last: "(weil) der Zug um neun Uhr abfährt"."""
        finite, end = self._verb()
        # A prefix joins its verb; a participle or an infinitive stays a word of its own.
        last = end + finite if end and end == self.predicate.verb.prefix else join(end, finite)
        return join(self.subject.de, self._middle(), last)

    def _verb(self) -> tuple[str, str]:
        """The finite verb and what stands at the end of a main clause."""
        verb, person = self.predicate.verb, self.subject.person
        if self.mood is PRESENT:
            return verb.present[person], verb.prefix
        if self.mood is PAST:
            if verb.preterite:
                return verb.preterite[person], ""
            return (_SEIN if verb.auxiliary == "sein" else _HABEN)[person], verb.participle
        assert self.mood.german is not None
        return self.mood.german[person], verb.infinitive

    def _middle(self) -> str:
        pred = self.predicate
        obj, no = pred.object.de, ""
        if self.negated:
            if pred.no_object:
                obj = pred.no_object.de
            else:
                no = "nicht"
        return join(pred.pronoun.de, self.time.de, self.adverb.de, obj, no, pred.place.de)


def joined(main: Clause, conjunction: Pair, dependent: Clause) -> Pair:
    """A main clause and a clause that depends on it: "..., weil ..."."""
    return Pair(
        f"{main.english()} {conjunction.en} {dependent.english()}",
        f"{main.main()}, {conjunction.de} {dependent.subordinate()}",
    )


def dependent_first(conjunction: Pair, dependent: Clause, main: Clause) -> Pair:
    """The dependent clause first; the German main clause then begins with its verb."""
    return Pair(
        f"{conjunction.en} {dependent.english()}, {main.english()}",
        f"{conjunction.de} {dependent.subordinate()}, {main.inverted()}",
    )


BECAUSE, ALTHOUGH, IF = Pair("because", "weil"), Pair("although", "obwohl"), Pair("if", "wenn")
THAT, WHETHER, BEFORE = Pair("that", "dass"), Pair("whether", "ob"), Pair("before", "bevor")
