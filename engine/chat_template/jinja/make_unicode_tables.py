"""Makes unicode_tables.inc: tables of the properties that Python's str knows of characters.

    python make_unicode_tables.py > unicode_tables.inc

The tables have the Unicode version of the Python that runs this script. The first line of
unicode_tables.inc states the version.
"""

import sys
import unicodedata

CHARACTERS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def runs(points):
    """The maximal runs (first, last, stride) of ascending code points, with stride 1 or 2."""
    found, i = [], 0
    while i < len(points):
        ends = []
        for stride in (1, 2):
            j = i
            while j + 1 < len(points) and points[j + 1] - points[j] == stride:
                j += 1
            ends.append((j, stride))
        j, stride = max(ends, key=lambda end: end[0])
        found.append((points[i], points[j], stride))
        i = j + 1
    return found


def emit(name, kind, rows):
    print(f"constexpr {kind} {name}[] = {{")
    line = "   "
    for row in rows:
        text = " {" + ", ".join(row) + "},"
        if len(line) + len(text) > 100:
            print(line)
            line = "   "
        line += text
    print(line)
    print("};")


def emit_property(name, predicate):
    points = [c for c in CHARACTERS if predicate(chr(c))]
    emit(name, "Run", [(f"0x{a:X}", f"0x{b:X}", str(s)) for a, b, s in runs(points)])


def emit_mapping(name, change):
    by_delta = {}
    special = []
    for c in CHARACTERS:
        changed = change(chr(c))
        if len(changed) == 1 and changed != chr(c):
            by_delta.setdefault(ord(changed) - c, []).append(c)
        elif len(changed) > 1:
            special.append((c, [ord(x) for x in changed] + [0, 0]))
    rows = sorted((a, b, s, delta) for delta, points in by_delta.items() for a, b, s in runs(points))
    emit(name, "Shift", [(f"0x{a:X}", f"0x{b:X}", str(s), str(d)) for a, b, s, d in rows])
    emit(name + "Special", "Special",
         [(f"0x{c:X}", "{" + ", ".join(f"0x{x:X}" for x in to[:3]) + "}") for c, to in special])


def main():
    print(f"// Made by make_unicode_tables.py from Unicode {unicodedata.unidata_version}.")
    emit_property("kAlpha", str.isalpha)
    emit_property("kDecimal", str.isdecimal)
    emit_property("kDigit", str.isdigit)
    emit_property("kNumeric", str.isnumeric)
    emit_property("kPrintable", str.isprintable)
    emit_property("kUpper", str.isupper)
    emit_property("kLower", str.islower)
    emit_property("kTitle", lambda c: c.istitle() and not c.isupper())
    emit_mapping("kToUpper", str.upper)
    emit_mapping("kToLower", str.lower)
    emit_mapping("kToTitle", str.title)


if __name__ == "__main__":
    sys.exit(main())
