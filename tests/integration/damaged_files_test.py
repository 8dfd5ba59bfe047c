"""Damaged and hostile model files, each with every command that reads one: a one-line refusal or a
normal end, but never a signal, a hang, or excessive memory."""

import concurrent.futures
import json
import os
import pathlib
import resource
import tempfile
import unittest

import damaged_files
import damaged_models
import gguf_bytes
import harness
from damaged_runs import ADDRESS_BYTES, ARGUMENTS, SCRATCH, Outcome, complaints


def json_complaint(path):
    """Returns what is wrong with the output of inspect --json for a file that inspect accepts."""
    result = harness.run_tidepool("inspect", "--json", "--model", path)
    try:
        return "" if json.loads(result.stdout)["tensors"] else "no tensors"
    except (KeyError, ValueError) as error:
        return f"{error!r} in its JSON"


def run_case(one):
    """Runs one case with all commands. Returns the faults and the number of refusals."""
    wrong, refusals = [], 0
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        paths = [pathlib.Path(folder) / name for name in one.files]
        for path, content in zip(paths, one.files.values()):
            path.write_bytes(content)
        for command, wanted in one.outcomes.items():
            outcome = Outcome(command, paths[0])
            refusals += outcome.code != 0
            wrong += [f"{one.name}: {command}: {complaint}: {outcome.err[:400]!r}"
                      for complaint in complaints(outcome, wanted, folder)]
            if command == "inspect" and outcome.code == 0 and (problem := json_complaint(paths[0])):
                wrong.append(f"{one.name}: inspect --json: {problem}")
    return wrong, refusals


class DamagedFilesTest(unittest.TestCase):

    def check(self, cases):
        names = [one.name for one in cases]
        self.assertEqual(len(names), len(set(names)), "two cases of one name")
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            results = list(pool.map(run_case, cases))
        wrong = [line for lines, _ in results for line in lines]
        self.assertEqual(wrong, [], "\n".join(["", *wrong]))
        return [refusals for _, refusals in results]

    def setUp(self):
        self.victim = gguf_bytes.read((harness.TINY / "mixtral_q4_0.gguf").read_bytes())

    def test_the_victim_is_sound(self):
        content = (harness.TINY / "mixtral_q4_0.gguf").read_bytes()
        self.assertEqual(self.victim.build(), content)
        self.check([damaged_files.case("sound", content, damaged_files.NOBODY)])

    def test_structure(self):
        self.check(list(damaged_files.structure_cases(self.victim)))

    def test_damaged_keys_and_numbers(self):
        self.check(list(damaged_models.model_cases(self.victim)))

    def test_chat_templates(self):
        path = SCRATCH / "template.gguf"
        flags = ("--chat", "a", *ARGUMENTS["generate"][2:])
        for name, (template, refused) in damaged_models.CHAT_TEMPLATES.items():
            changed = self.victim.copy()
            changed.set("tokenizer.chat_template", gguf_bytes.STRING, template)
            path.write_bytes(changed.build())
            outcome = Outcome("generate", path, flags)
            wanted = damaged_files.Refused(("template",), outcome.code)
            with self.subTest(name):
                self.assertIn(outcome.code, (1, 2) if refused else (0,), outcome.err)
                self.assertEqual(list(complaints(outcome, wanted, "")) if refused else [], [])

    def test_random_damage(self):
        refusals = self.check(list(damaged_models.random_damage(self.victim)))
        # Some damage is noticed, and some is harmless.
        self.assertGreater(sum(count > 0 for count in refusals), len(refusals) // 4)
        self.assertGreater(sum(count == 0 for count in refusals), len(refusals) // 10)


if __name__ == "__main__":
    if not harness.SANITIZED:
        # If a file makes a command allocate too much, only that command ends, not the machine.
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES, ADDRESS_BYTES))
    unittest.main(verbosity=2)
