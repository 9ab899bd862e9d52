"""A seeded grammar of English and German: the code behind `scripts/make_phrasebook.py`.

From small to large: `dice` (random draws that every Python version repeats) and `numerals`; `inflection` (nouns,
adjectives, articles, verbs) and the `lexicon` written with it; `times` and `phrases` (pieces of a sentence); `clauses`
(word order) and `actions` (what people do); the sentence templates of `travel`, `appointments`, `counting`, `shopping`,
`town` and `people`; `corpus`, which draws, splits and writes.
"""
