"""The tree uses plain English and the current names.

Old names and unclear phrases must not return, neither in code nor in comments and texts.
"""

import re
import unittest

from tree import files, read

SELF = "tests/lint/language_test.py"  # quotes the phrases

# Files that are not checked, and why.
EXCEPT = {
    "tests/integration/crash_test.py": "its prompt 'Go on' determines the tokens that it expects",
    "tests/integration/workers_test.py": "its prompt 'And it goes on' determines the tokens that it expects",
}

# Phrase, and what to write instead. Matched without regard to case.
PHRASES = {
    r"(?:go|goes|going|went) on": "continue",
    r"to be had": "available",
    r"anew": "again",
    r"for ever": "without end",
    r"mend(?:s|ed|ing)?": "fix",
    r"(?:foretell|foretold|foresee|foresaw)\w*": "predict",
    r"(?<!there )(?:is|are|was|were) no (?!longer\b|more\b|less\b|worse\b|\w+er\b)\w+": "is not a",
    r"so many|so much": "the number",
    r"(?:is|are|be|was|were) told": "gets, receives",
    r"tells? (?:of|that|nothing)": "reports",
    r"stands?(?! for\b)(?!-)": "is",
    r"the other side": "the peer",
    r"the disk gives": "the disk reads",
    r"cut short|cut off": "truncated, interrupted",
    r"(?:made?|makes) (?:it )?again": "rebuilt",
    r"(?:given?|gives|gave|giving) back": "returned, freed",
    r"(?:held|holds?) against": "counted against",
    r"(?:lies|lie|lay) (?:in|on|at|there)": "is in",
    r"of those that": "of the",
    r"is away|are away": "is unavailable",
    r"but for": "except for",
    r"as it stands": "unchanged",
    r"all the same": "anyway",
    r"by turns": "in turn",
    r"under way": "in progress",
    r"what is there of": "the existing part of",
    r"behind (?:it|them|that|midnight|the last|their last|its last)": "after",
    r"a stranger|strangers?": "untrusted clients",
}
PHRASE = re.compile(r"\b(?:" + "|".join(PHRASES) + r")\b", re.IGNORECASE)

# Old name, and the name from now on.
NAMES = {
    "AskedTimes": "FirstRequestTimes",
    "AttemptRecord": "RetryState",
    "CertainlyAhead": "QueueAheadCounter",
    "CutConnections": "ShutdownAcceptedSockets",
    "EngineShared": "EngineInbox",
    "Foretell": "PrefetchHint",
    "NamedRequests": "IdempotencyCache",
    "OrderedLayer": "BoundedMoeLayer",
    "Outlook": "ReuseForecast",
    "OutlookWalk": "HoldHorizon",
    "PlaceShares": "AdmissionSlots",
    "PrefixesUnderWay": "InFlightPrefixes",
    "Resubmissions": "FailoverQueue",
    "SharedAnswer": "SingleFlight",
    "Silence": "IdleGap",
    "SpareFiles": "FdHeadroom",
    "StepPace": "StepCostModel",
    "UntakenWrites": "WriteTimeouts",
    "best_rows?_?": "argmax_rows",
    "goes_on\\w*": "continues...",
    "kForetoldRows": "kMaxHintRows",
    "kLeast[A-Z]\\w*": "kMin...",
    "kMaxCrashes": "kMaxStoredCrashes",
    "kMost(?:[A-Z]\\w*)?": "kMax...",
    "most_[a-z]\\w*": "max_...",
    "resubmissions": "failover queue",
    "told_\\w*|prompt_told|told(?=\\(\\))|kTold\\w*": "reported...",
    "under_way\\w*": "in_flight...",
}
NAME = re.compile(r"\b(?:" + "|".join(NAMES) + r")\b")

TEST_NAME = re.compile(r"^ *(?:TEST(?:_F|_P)?\(\w+, (?P<cc>\w+)\)|def (?P<py>test_\w+))", re.MULTILINE)
# A test's name says the case and the result, without these words.
ODD_IN_TEST_NAME = re.compile(
    r"(?:GoesOn|GoOn|Told|Anew|Behind|Nobody|UnderWay|Whoever|Stranger|ForEver|CutShort|MadeAgain|Tells|What|Who)"
    r"(?![a-z])|_(?:go(?:es)?_on|told|anew|behind|nobody|under_way|stranger|tells|what)(?![a-z])")

WRITTEN = (".bzl", ".cc", ".cu", ".h", ".md", ".proto", ".py", ".sh", ".toml", ".yaml", "BUILD", "Dockerfile",
           "redis.conf")


def written_files():
    return [name for name in files()
            if (name.endswith(WRITTEN) or re.fullmatch(r"tools/\w+", name)) and name != SELF]


def prose(text):
    """The text with each run of white space, and the marks of a comment's next line, as one space."""
    return re.sub(r"[ \t]*\n[ \t]*(?://|#)?[ \t]*|[ \t]+", " ", text)


def phrases_in(name):
    return [found[0] for found in PHRASE.finditer(prose(read(name)))]


class LanguageTest(unittest.TestCase):

    def test_unclear_phrases_do_not_return(self):
        found = [f"{name}: {phrase!r}" for name in written_files() if name not in EXCEPT
                 for phrase in phrases_in(name)]
        self.assertEqual(found, [])

    def test_old_names_do_not_return(self):
        found = [f"{name}: {old[0]}" for name in written_files()
                 for old in NAME.finditer(read(name))]
        self.assertEqual(found, [])

    def test_names_of_tests_are_plain(self):
        found = [f"{name}: {test['cc'] or test['py']}" for name in written_files()
                 if name.startswith("tests/")
                 for test in TEST_NAME.finditer(read(name))
                 if ODD_IN_TEST_NAME.search(test["cc"] or test["py"])]
        self.assertEqual(found, [])

    def test_odd_names_of_tests_are_found(self):
        for line in ("TEST(A, ItGoesOnBehindB) {", "TEST_F(A, NobodyWaits) {", "TEST(A, WhatABCosts) {",
                     "    def test_a_b_is_told(self):", "    def test_what_a_b_costs(self):"):
            test = TEST_NAME.search(line)
            self.assertTrue(ODD_IN_TEST_NAME.search(test["cc"] or test["py"]), line)
        for line in ("TEST(A, WholeWords) {", "TEST(A, RunsWhateverComes) {", "TEST_P(A, ContinuesWhereItEnded) {"):
            self.assertFalse(ODD_IN_TEST_NAME.search(TEST_NAME.search(line)["cc"]), line)

    def test_exceptions_are_needed(self):
        self.assertEqual([name for name in EXCEPT if not phrases_in(name)], [])

    def test_phrases_are_found(self):
        for text in ("a stream goes on", "it is no session", "one that\n// goes on", "made again"):
            self.assertTrue(PHRASE.search(prose(text)), text)
        for text in ("there is no session", "is no longer", "it stands for", "a stand-in"):
            self.assertFalse(PHRASE.search(prose(text)), text)


if __name__ == "__main__":
    unittest.main()
