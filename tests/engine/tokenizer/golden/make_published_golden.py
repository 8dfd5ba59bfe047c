"""Makes published_golden.json: what transformers renders of the published templates in published/.

    python make_published_golden.py [--templates FOLDER] [--out FILE] [--check]

Needs transformers with jinja2. The conversations are those of make_chat_golden.py. A template that fails
for a conversation has null as its text. With --templates and --out it does the same for other templates:
    python make_published_golden.py --templates llama.cpp/models/templates --out /tmp/golden.json
    .cache/bazel-bin/tests/engine/chat_template/published_templates_test /tmp/golden.json FOLDER
"""

import argparse
import datetime
import json
import pathlib
import sys

import make_chat_golden as chat

HERE = pathlib.Path(__file__).resolve().parent
NOW = datetime.datetime(2026, 11, 25, 12, 0, 0, tzinfo=datetime.timezone.utc)


def cases_of(folder, conversations):
    for path in sorted(folder.glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        for number, inputs in enumerate(conversations):
            variables = {key: inputs[key] for key in ("messages", "tools", "add_generation_prompt")}
            variables |= {"documents": None, "bos_token": "<s>", "eos_token": "</s>", "strftime_now": NOW.strftime}
            yield {"template": path.name, "conversation": number,
                   "text": chat.render(source, variables | inputs["template_kwargs"])}


def lines(items):
    return "[\n" + ",\n".join(json.dumps(item, ensure_ascii=False) for item in items) + "\n]"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--templates", default=HERE / "published", type=pathlib.Path)
    parser.add_argument("--out", default=HERE / "published_golden.json", type=pathlib.Path)
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    args = parser.parse_args()
    conversations = chat.conversations()
    cases = list(cases_of(args.templates, conversations))
    text = (f'{{"now": {int(NOW.timestamp())},\n"conversations": {lines(conversations)},\n'
            f'"cases": {lines(cases)}}}\n')
    names = sorted({case["template"] for case in cases})
    rendered = sum(case["text"] is not None for case in cases)
    print(f"{len(names)} templates, {len(cases)} cases, {rendered} of them with a text")
    if not args.check:
        args.out.write_text(text, encoding="utf-8")
    elif args.out.read_text(encoding="utf-8") != text:
        sys.exit(f"{args.out.name}: DIFFERENT from the committed file")
    else:
        print(f"{args.out.name}: as committed")


if __name__ == "__main__":
    main()
