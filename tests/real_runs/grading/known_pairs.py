r"""Gold, prediction, right? Pairs that shaped the rules.

From public Math-Verify issues (numbers beside them); math-verify 0.9.0 alone gets a third of them wrong. ``POLICY``
holds pairs where mathematics leaves a choice; what is expected there is ours, stated in ``grading.compare``.
"""

from __future__ import annotations

# (issue, gold, prediction, right)
PAIRS: list[tuple[str, str, str, bool]] = [
    ("#14", r"$\frac{1}{2004!}$", r"$\frac{1}{2006!}$", False),
    ("#14", r"$\frac{1}{2^{99}}$", r"$\frac{1}{2^{98}}$", False),
    ("#14", "$n=2, 3, 4$", "$n=1, 2, 3$", False),
    ("#14", "$D = (0, 1)$", "$D = (0, 1.5)$", False),
    ("#14", r"$F_n = \sum_{k=0}^{n-1} F_k F_{n-k-1}$", r"$F_n = \sum_{k=0}^{n-2} F_k F_{n-k-2}$", False),
    ("#14", r"$19, 46, \text{ and } 82$", "$21, 36, and 82$", False),
    ("#14", r"$1 - \frac{1}{\mathrm{e}}$", r"$1 + \frac{1}{\mathrm{e}}$", False),
    ("#14", r"$\pm 2021$", "$2021$", False),
    ("#14", "$12:00$", "$1:00$", False),
    ("#14", r"$1, 2, \ldots, n$", r"$1, 3, 5, \ldots, 2n-1$", False),
    ("#60", "3*x-1*y+13=0", "3x + 4y + 14=0", False),
    ("#47b", r"\boxed{1331} and \boxed{1728}", r"\boxed{1728}", False),
    ("#2", r"$\frac{1}{12}$", "$0.0833333333333333$", True),
    ("#2", "$34x+45y-20z+100=0$", "$-34x-45y+20z-100=0$", True),
    ("#2", r"$\tan^2(y)+1$", r"$\sec^2(y)$", True),
    ("#37", r"$\text{13}$", "$13$", True),
    ("#26", "$2x+4y-3=0$", r"$y = -\frac{1}{2}x + \frac{3}{4}$", True),
    ("#69", r"\boxed{e^{16} - 1}", "-1 + exp(16)", True),
    ("#69", r"\boxed{\dfrac{\pi}{2}}", "pi/2", True),
    ("#69", r"\boxed{-2\pi}", "-2*pi", True),
    (
        "#76",
        "73",
        (
            'Right: 122 + 294 + 489 = 905\n\nThus, the number of residents who own all four of the '
            'things is **73**.\n\n--- \n\n✅ Final Answer: **73**'
        ),
        True,
    ),
    (
        "#44",
        "840",
        (
            'SoHi YES.\n\n could answer therefore\\boxed{840}.,but let me put this after '
            'explain.\n\n**Final Answer**\n\\boxed{840}'
        ),
        True,
    ),
    (
        "#44",
        "4",
        (
            ' the answer should be \\boxed{004}.\n\nBut let me check again: the sum is 2,552,004. The '
            'last three digits are 004. So, \\boxed{004} is the correct answer.\n\n**Final '
            'Answer**\n\\boxed{004}'
        ),
        True,
    ),
    ("#40", r"$\frac{x^2}{4}+\frac{y^2}{3}=1$", r"$\frac{x^2}{16}+\frac{y^2}{12}=1$", False),
    ("probe", r"$\boxed{1,234}$", r"$\boxed{1234}$", True),
    ("probe", r"$\boxed{(1,2)}$", r"$\boxed{(2,1)}$", False),
    ("probe", r"$\boxed{90^\circ}$", r"$\boxed{90}$", True),
    ("probe", r"$\boxed{90}$", r"$\boxed{90^\circ}$", True),
    ("#65", "$1$", r"\boxed{\dfrac{5^{\left(5^{\left(5^{\left(5^5\right)}\right)} - 4\right)} - 5}{16}}", False),
    ("decimal", "123456789", r"\boxed{123456788.9999}", False),
]

POLICY: list[tuple[str, str, str, bool]] = [
    ("#2", "$33.3$", r"$\frac{100}{3}$", False),
    ("#10", "$(0, 12.5)$", "$0 < x < 12.5$", True),
    ("#71", r"\boxed{$(-\infty, 3)$}", r"\boxed{$x<3$}", True),
    (
        "#25",
        r"the solution to the problem is $m \in [\sqrt{2}, +\infty)$",
        (
            'Final Answer\n\\[\n\\boxed{m \\geq \\sqrt{2}}\n\\]'
        ),
        True,
    ),
    ("#69", r"\boxed{O(\log \log n)}", "Theta(log log n)", False),
    ("probe", r"$\boxed{50\%}$", r"$\boxed{50}$", True),
    ("probe", r"$\boxed{50\%}$", r"$\boxed{0.5}$", True),
    ("probe", r"$\boxed{\{1,2\}}$", r"$\boxed{1, 2}$", True),
    ("probe", r"$\boxed{5\text{ cm}}$", r"$\boxed{5}$", True),
    ("probe", r"$\boxed{10}$", r"$\boxed{5}$ or $\boxed{10}$", False),
    ("probe", r"$\boxed{\frac{1}{3}}$", r"$\boxed{0.333333}$", True),
    ("probe", r"$\boxed{\frac{1}{3}}$", r"$\boxed{0.33}$", False),
]
