"""Counts the test cases of Bazel build-event files and prints "N passed, N failed, N skipped".

Usage: summarize_tests.py [--passed=NAME[=SECONDS]] [--failed=NAME[=SECONDS]] [--skipped=NAME]
       EVENTS.json...
Each NAME is a check that ran outside Bazel. Exits with 1 when a case failed or nothing ran.

If a target's test.xml lists test cases, each case is counted. Otherwise (a script) the target counts
as one case. A target that could not be built or timed out counts as one failure and is named. Before
the counts, a table shows the slowest targets and checks that ran. (Cached results did not run.)
"""

import json
import pathlib
import sys
import urllib.parse
import xml.etree.ElementTree


SLOWEST_SHOWN = 15


def count_cases(xml_path):
    """Returns (passed, failed names, skipped names) of one test.xml."""
    passed, failed, skipped = 0, [], []
    try:
        root = xml.etree.ElementTree.parse(xml_path).getroot()
    except (OSError, xml.etree.ElementTree.ParseError):
        return passed, failed, skipped
    for case in root.iter("testcase"):
        name = f"{case.get('classname', '')}.{case.get('name', '')}"
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(name)
        elif case.find("skipped") is not None or case.get("result") == "skipped":
            skipped.append(name)
        else:
            passed += 1
    return passed, failed, skipped


def summarize_events(path):
    """Returns (passed, failed names, skipped names) over all targets of one event file."""
    passed, failed, skipped = 0, [], []
    for line in pathlib.Path(path).read_text().splitlines():
        event = json.loads(line)
        identity = event.get("id", {})
        result = event.get("testResult")
        if result is not None:
            label = identity["testResult"]["label"]
            xml_paths = [
                urllib.parse.urlparse(output["uri"]).path
                for output in result.get("testActionOutput", [])
                if output["name"] == "test.xml"
            ]
            target_passed, target_failed, target_skipped = 0, [], []
            for xml_path in xml_paths:
                counts = count_cases(xml_path)
                target_passed += counts[0]
                target_failed += counts[1]
                target_skipped += counts[2]
            if result["status"] != "PASSED" and not target_failed:
                target_failed = [result["status"]]
            elif result["status"] == "PASSED" and not (target_passed or target_skipped):
                target_passed = 1
            passed += target_passed
            failed += [f"{label} {name}" for name in target_failed]
            skipped += [f"{label} {name}" for name in target_skipped]
        elif "completed" in event and not event["completed"].get("success", False):
            label = identity.get("targetCompleted", {}).get("label", "?")
            failed.append(f"{label} was not built")
    return passed, failed, skipped


def slowest_targets(path):
    """Returns [(seconds, label)] of the targets that ran, the slowest first."""
    seconds = {}
    for line in pathlib.Path(path).read_text().splitlines():
        event = json.loads(line)
        result = event.get("testResult")
        if result is None or result.get("cachedLocally") or "executionInfo" not in result:
            continue
        if result["executionInfo"].get("cachedRemotely"):
            continue
        label = event["id"]["testResult"]["label"]
        took = int(result.get("testAttemptDurationMillis", 0)) / 1000
        seconds[label] = seconds.get(label, 0) + took
    return sorted(((took, label) for label, took in seconds.items()), reverse=True)


def print_slowest(rows):
    slowest = sorted(rows, reverse=True)
    if not slowest:
        return
    total = sum(took for took, _ in slowest)
    print(f"slowest of {len(slowest)} tests that ran ({total:.0f} s in all):")
    for took, label in slowest[:SLOWEST_SHOWN]:
        print(f"{took:8.1f} s  {label}")


def main(arguments):
    passed, failed, skipped, seconds = 0, [], [], []
    for path in arguments:
        option, _, check = path.partition("=")
        if option in ("--passed", "--failed", "--skipped"):
            name, _, took = check.partition("=")
            skipped += [name] if option == "--skipped" else []
            passed += option == "--passed"
            failed += [name] if option == "--failed" else []
            seconds += [(float(took), name)] if took else []
            continue
        seconds += slowest_targets(path)
        counts = summarize_events(path)
        passed += counts[0]
        failed += counts[1]
        skipped += counts[2]
    print_slowest(seconds)
    for name in skipped:
        print(f"skipped: {name}")
    for name in failed:
        print(f"failed: {name}")
    print(f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
