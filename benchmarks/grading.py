"""How fast and how right is grading?

    python benchmarks/grading.py                                      # speed on one core, adversarial answers
    python benchmarks/grading.py gsm8k_test.parquet math500.parquet   # and every gold, as it is and perturbed

Parquet files are read in the plain or the verl layout. A gold is perturbed one number at a time (n -> n + 1), by a
sign, by adding 1, or, for words, by a letter; not one perturbed gold may be graded right.
"""

from __future__ import annotations

import re
import sys
import time

from real_runs.data import read_rows
from real_runs.grading import Grader, Verdict, count_verdicts, validate_golds
from real_runs.grading.judge import gold_text

ORDINARY = [
    ("18", "She sells 9 eggs for $2 each, so she makes 9 * 2 = 18 dollars.\n#### 18"),
    ("1,234", "The total is therefore \\boxed{\\$1{,}234}."),
    ("\\frac{3}{56}", "Multiplying, we get $\\frac{6}{112} = \\boxed{\\dfrac{3}{56}}$."),
    ("3\\sqrt{13}", "Hence the distance is $\\boxed{\\sqrt{117}}$."),
    ("\\left( 3, \\frac{\\pi}{2} \\right)", "so the point is \\boxed{(3, \\pi/2)}."),
    ("x^5 - x^4 + x^3 - x^2 + x - 1", "\\boxed{(x-1)(x^4+x^2+1)}"),
    ("(3,4]", "The solution set is $\\boxed{(3, 4]}$."),
    ("90^\\circ", "The angle is \\boxed{90}."),
    ("\\text{Evelyn}", "The fastest runner is \\boxed{\\text{Angela}}."),
    ("6 - 5i", "\\boxed{-5i+6}"),
    ("1 \\pm \\sqrt{19}", "\\boxed{1+\\sqrt{19}, 1-\\sqrt{19}}"),
    ("y = 2x + 3", "The line is $\\boxed{y - 2x = 3}$."),
]

ADVERSARIAL = {
    "exponent tower": "\\boxed{10^{10^{10}}}",
    "taller tower": "\\boxed{\\dfrac{5^{(5^{(5^{(5^5)})}-4)}-5}{16}}",
    "tower inside an integral": "\\boxed{\\int_0^1 10^{10^{10^{10}}}\\,dx}",
    "1 MB of braces": "{" * 1_000_000,
    "1 MB of open boxes": "\\boxed{" * 150_000,
    "nested fractions": "\\boxed{" + "\\frac{1}{" * 5_000 + "1" + "}" * 5_001,
    "factorial of a factorial": "\\boxed{((9!)!)!}",
    "brackets": "\\boxed{" + "(" * 3_000 + "}",
}


def perturbed(gold: str) -> list[str]:
    """Wrong answers one edit away from ``gold``."""
    text = gold_text(gold)
    out = []
    for match in re.finditer(r"\d+", text):
        digits = match.group()
        out.append(text[: match.start()] + str(int(digits) + 1).zfill(len(digits)) + text[match.end() :])
    words = re.sub(r"\\text(?:bf|rm)?|\\mbox|[{}()\\]", "", text).strip()
    if words.isalpha() and not text.startswith(("\\pi", "\\alpha", "\\infty")):
        out.append(text.replace(words, words + "s" if len(words) > 1 else "Q"))
    elif not re.search(r"[,=<>]|\\pm|\\in|\\cup|begin|text|mbox|_|:|\\le|\\ge", text):
        out.append(text + "+1")
        out.append(text[1:] if text.startswith("-") else f"-({text})")
    return [x for x in dict.fromkeys(out) if x.strip() != text.strip() and x not in ("-(0)", "-(\\$0)")]


def check_file(path: str, grader: Grader) -> None:
    """Every gold right against itself, every perturbed one wrong."""
    golds = [row.gold for row in read_rows(path).rows]
    report = validate_golds(golds, grader)
    print(f"{path}: {report.summary()}")
    kept = [gold for _, gold in report.kept]
    same = grader.grade([(gold, f"Therefore the answer is ${gold}$.") for gold in kept])
    print(f"  against themselves: {count_verdicts(same)}")
    bare = grader.grade([(gold, gold_text(gold)) for gold in kept])
    print(f"  against themselves, without a box: {count_verdicts(bare)}")
    pairs = [(gold, f"Therefore the answer is $\\boxed{{{p}}}$.") for gold in kept for p in perturbed(gold)]
    start = time.perf_counter()
    verdicts = grader.grade(pairs)
    seconds = time.perf_counter() - start
    print(f"  perturbed: {count_verdicts(verdicts)}, {len(pairs) / seconds:.0f} per second, {layers(verdicts)}")
    for (gold, completion), verdict in zip(pairs, verdicts, strict=True):
        if verdict.outcome == "right":
            print(f"  RIGHT BUT PERTURBED: {gold} <- {completion}")


def layers(verdicts: list[Verdict]) -> str:
    """Who decided, as a phrase."""
    rules = sum(v.by == "rules" for v in verdicts)
    return f"{rules / len(verdicts):.1%} by rules"


def main() -> None:
    with Grader(workers=1, timeout=3.0, cache=0) as grader:
        start = time.perf_counter()
        grader.grade([("1", "1")])
        print(f"start: {time.perf_counter() - start:.2f} s")
        for answer in ORDINARY:
            grader.grade([answer])
        pairs = [(gold, f"{completion} " + " " * k) for k in range(100) for gold, completion in ORDINARY]
        start = time.perf_counter()
        verdicts = grader.grade(pairs)
        seconds = time.perf_counter() - start
        print(f"ordinary answers: {len(pairs) / seconds:.0f} gradings per second on one core, {layers(verdicts)}")
        for name, completion in ADVERSARIAL.items():
            start = time.perf_counter()
            (verdict,) = grader.grade([("1", completion)])
            seconds = time.perf_counter() - start
            why = verdict.reason or verdict.by
            print(f"{name}: {verdict.outcome} ({why}), score {verdict.score:g}, {seconds:.2f} s")
        for path in sys.argv[1:]:
            check_file(path, grader)


if __name__ == "__main__":
    main()
