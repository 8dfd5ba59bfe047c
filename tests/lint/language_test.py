"""The tree uses plain English and the current names.

Old names must not return anywhere. Unclear phrases must not appear in the folders of CLEAN, which
only grows: when a folder has none left, add it. `language_test.py --counts` prints the phrases left
per folder.
"""

import collections
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SELF = "tests/lint/language_test.py"  # quotes the phrases

EVERYTHING = "everything"  # code, comments and texts
MESSAGES = "messages"  # only string literals of C++ code: errors, logs, help

# A folder covers its subfolders. The longest match counts.
CLEAN = {
    "CONTRIBUTING.md": EVERYTHING,
    "README.md": EVERYTHING,
    "docs": EVERYTHING,
    "k8s": EVERYTHING,
    "proto": EVERYTHING,
    "tools": EVERYTHING,
    "engine": MESSAGES,
    "kernels": EVERYTHING,
    "moe": MESSAGES,
    "service/auth": EVERYTHING,
    "service/base": EVERYTHING,
    "service/grpc": EVERYTHING,
    "service/http": EVERYTHING,
    "service/store": EVERYTHING,
    "service/worker": EVERYTHING,
    "tests/docs": EVERYTHING,
    "tests/fuzz": EVERYTHING,
    "tests/golden": EVERYTHING,
    "tests/k8s": EVERYTHING,
    "tests/kernels": EVERYTHING,
    "tests/lint": EVERYTHING,
    "tests/proto": EVERYTHING,
    "tests/service/auth": EVERYTHING,
    "tests/service/base": EVERYTHING,
    "tests/service/grpc": EVERYTHING,
    "tests/service/store": EVERYTHING,
    "tests/service/worker": EVERYTHING,
    "tests/tools": EVERYTHING,
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
    "best_rows": "argmax_rows",
    "kForetoldRows": "kMaxHintRows",
    "kLeast[A-Z]\\w*": "kMin...",
    "kMost[A-Z]\\w*": "kMax...",
}
NAME = re.compile(r"\b(?:" + "|".join(NAMES) + r")\b")

LITERAL = re.compile(r'"(?:\\.|[^"\\\n])*"')
WRITTEN = (".bzl", ".cc", ".cu", ".h", ".md", ".proto", ".py", ".sh", ".toml", ".yaml", "BUILD", "Dockerfile",
           "redis.conf")


def written_files():
    names = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"], check=True,
                           capture_output=True, text=True).stdout.split("\n")
    return [name for name in names
            if (name.endswith(WRITTEN) or re.fullmatch(r"tools/\w+", name)) and name != SELF
            and (ROOT / name).is_file()]


def rule_for(name):
    while name and name not in CLEAN:
        name = name.rpartition("/")[0]
    return CLEAN.get(name)


def without_comments(code):
    return re.sub(r"^\s*//.*$|\s//\s.*$", "", code, flags=re.MULTILINE)


def joined_literals(code):
    """The string literals of C++ code; adjacent literals are one."""
    code = re.sub(r'"\s*\n\s*"', "", without_comments(code))
    return "\n".join(literal[1:-1] for literal in LITERAL.findall(code))


def prose(text):
    """The text with each run of white space, and the marks of a comment's next line, as one space."""
    return re.sub(r"[ \t]*\n[ \t]*(?://|#)?[ \t]*|[ \t]+", " ", text)


def phrases_in(name, rule):
    text = (ROOT / name).read_text(errors="replace")
    if rule == MESSAGES:
        text = joined_literals(text) if name.endswith((".cc", ".h")) else ""
    return [found[0] for found in PHRASE.finditer(prose(text))]


class LanguageTest(unittest.TestCase):

    def test_clean_folders_stay_clean(self):
        found = [f"{name}: {phrase!r}" for name in written_files() if rule_for(name)
                 for phrase in phrases_in(name, rule_for(name))]
        self.assertEqual(found, [])

    def test_old_names_do_not_return(self):
        found = [f"{name}: {old[0]}" for name in written_files()
                 for old in NAME.finditer((ROOT / name).read_text(errors="replace"))]
        self.assertEqual(found, [])

    def test_entries_of_clean_exist(self):
        self.assertEqual([name for name in CLEAN if not (ROOT / name).exists()], [])

    def test_phrases_are_found(self):
        for text in ("a stream goes on", "it is no session", "one that\n// goes on", "made again"):
            self.assertTrue(PHRASE.search(prose(text)), text)
        for text in ("there is no session", "is no longer", "it stands for", "a stand-in"):
            self.assertFalse(PHRASE.search(prose(text)), text)
        self.assertEqual(joined_literals('F("is " // goes on\n  "no pack");'), "is no pack")


def print_counts():
    counts = collections.Counter()
    for name in written_files():
        folder = "/".join(name.split("/")[:-1][:3]) or name
        counts[folder] += len(phrases_in(name, EVERYTHING))
    for folder, count in sorted(counts.items()):
        print(f"{count:5}  {folder}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--counts"]:
        print_counts()
    else:
        unittest.main()
