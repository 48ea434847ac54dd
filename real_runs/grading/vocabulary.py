"""Names the grader knows: spellings, functions, symbols, units. Tables only."""

from __future__ import annotations

_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789", strict=True))
_FRACTIONS = {"½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅛": "1/8"}
_UNICODE = {
    "≈": "\\approx ", "−": "-", "–": "-", "—": "-", "×": "\\times ", "·": "\\cdot ", "⋅": "\\cdot ", "∙": "\\cdot ",
    "÷": "\\div ",
    "√": "\\sqrt ", "π": "\\pi ", "∞": "\\infty ", "≤": "\\le ", "≥": "\\ge ", "≠": "\\ne ", "±": "\\pm ",
    "∓": "\\mp ", "∈": "\\in ", "∪": "\\cup ", "∩": "\\cap ", "∖": "\\setminus ", "°": "^\\circ ", "º": "^\\circ ",
    "…": "\\ldots ", "⋯": "\\cdots ", "α": "\\alpha ", "β": "\\beta ", "γ": "\\gamma ", "δ": "\\delta ",
    "ε": "\\epsilon ", "θ": "\\theta ", "λ": "\\lambda ", "μ": "\\mu ", "φ": "\\phi ", "ϕ": "\\phi ", "ρ": "\\rho ",
    "σ": "\\sigma ", "τ": "\\tau ", "ω": "\\omega ", "Δ": "\\Delta ", "Θ": "\\Theta ", "Ω": "\\Omega ",
    "∅": "\\emptyset ", "ℝ": "\\mathbb{R}", "ℤ": "\\mathbb{Z}", "ℕ": "\\mathbb{N}", "⟨": "\\langle ",
    "⟩": "\\rangle ", "⌊": "\\lfloor ", "⌋": "\\rfloor ", "⌈": "\\lceil ", "⌉": "\\rceil ", "\u00a0": " ",
    "\u2009": " ", "\u202f": " ", "（": "(", "）": ")", "，": ",", "：": ":", "“": '"', "”": '"', "’": "'",
    "€": "\\euro ", "£": "\\pound ", "％": "%",
}  # fmt: skip
# Invisible: soft hyphen, zero-width spaces and joiners, marks of writing direction, byte order mark.
_INVISIBLE = "\u00ad\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff"
SPELLINGS: tuple[tuple[str, str], ...] = (
    *((c, "") for c in _INVISIBLE),
    *((k, f"\\frac{{{v[0]}}}{{{v[2]}}}") for k, v in _FRACTIONS.items()),
    *((k, f"^{v}") for k, v in _SUPERSCRIPTS.items()),
    *_UNICODE.items(),
    ("\\dfrac", "\\frac"), ("\\tfrac", "\\frac"), ("\\cfrac", "\\frac"), ("\\dbinom", "\\binom"),
    ("\\tbinom", "\\binom"), ("\\mathbb{R}", "\\Reals "), ("\\mathbb R", "\\Reals "), ("\\mathbb{Z}", "\\Integers "),
    ("\\mathbb{N}", "\\Naturals "), ("\\mathbb{Q}", "\\Rationals "), ("\\mathbb{C}", "\\Complexes "),
    ("&nbsp;", " "), ("\\%", "%"), ("\\#", "#"), ("\\&", "&"),
)  # fmt: skip

# Canonical function names; the evaluator implements exactly the values of this table.
FUNCTIONS: dict[str, str] = {
    **{name: name for name in (
        "sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "coth", "arcsin", "arccos", "arctan",
        "arccot", "arcsec", "arccsc", "arsinh", "arcosh", "artanh", "exp", "ln", "log", "lg", "sqrt", "cbrt", "abs",
        "floor", "ceil", "gcd", "lcm", "max", "min", "binomial", "factorial",
    )},
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "acot": "arccot", "asinh": "arsinh", "acosh": "arcosh",
    "atanh": "artanh", "arcsinh": "arsinh", "arccosh": "arcosh", "arctanh": "artanh", "cosec": "csc", "tg": "tan",
    "ctg": "cot", "arctg": "arctan", "arcctg": "arccot", "Log": "log",
    "Sqrt": "sqrt", "Sin": "sin", "Cos": "cos", "Tan": "tan", "Exp": "exp", "root": "sqrt", "Abs": "abs",
    "ceiling": "ceil", "comb": "binomial", "choose": "choose",
}  # fmt: skip

_GREEK = (
    "alpha beta gamma delta zeta eta theta iota kappa lambda mu nu xi rho sigma tau upsilon chi psi omega pi phi "
    "Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega ell hbar aleph nabla partial"
)
GREEK: dict[str, str] = {name: name for name in _GREEK.split()} | {
    "epsilon": "epsilon", "varepsilon": "epsilon", "vartheta": "theta", "varphi": "phi", "varrho": "rho",
    "infty": "infty", "infin": "infty", "imath": "i", "Reals": "Reals", "Integers": "Integers",
    "Naturals": "Naturals", "Rationals": "Rationals", "Complexes": "Complexes",
}  # fmt: skip

CONSTANT_WORDS: dict[str, str] = {
    **{k: v for k, v in GREEK.items() if len(k) > 2 and k not in ("partial", "nabla", "ell")},
    "pi": "pi", "Pi": "pi", "PI": "pi", "oo": "infty", "inf": "infty", "infinity": "infty", "Infinity": "infty",
}  # fmt: skip

# LaTeX commands with a structure or a meaning of their own: (kind, canonical text).
COMMANDS: dict[str, tuple[str, str]] = {
    **{c: ("cmd", c) for c in ("frac", "binom", "sum", "prod", "begin", "end", "overline", "pmod", "bmod")},
    "sqrt": ("fn", "sqrt"),
    "times": ("op", "*"), "cdot": ("op", "*"), "ast": ("op", "*"), "div": ("op", "/"), "pm": ("op", "pm"),
    "mp": ("op", "mp"), "le": ("op", "<="), "leq": ("op", "<="), "leqslant": ("op", "<="), "ge": ("op", ">="),
    "geq": ("op", ">="), "geqslant": ("op", ">="), "lt": ("op", "<"), "gt": ("op", ">"), "ne": ("op", "!="),
    "neq": ("op", "!="), "in": ("op", "in"), "equiv": ("op", "="), "approx": ("op", "="), "cup": ("op", "cup"),
    "cap": ("op", "cap"), "setminus": ("op", "setminus"), "backslash": ("op", "setminus"), "colon": ("op", ":"),
    "ldots": ("op", "dots"), "cdots": ("op", "dots"), "dots": ("op", "dots"), "dotsc": ("op", "dots"),
    "dotsb": ("op", "dots"), "vdots": ("op", "dots"), "ddots": ("op", "dots"), "circ": ("op", "circ"),
    "degree": ("op", "deg"), "prime": ("op", "'"), "lvert": ("op", "|"), "rvert": ("op", "|"), "vert": ("op", "|"),
    "mid": ("op", "|"), "lfloor": ("op", "lfloor"), "rfloor": ("op", "rfloor"), "lceil": ("op", "lceil"),
    "rceil": ("op", "rceil"), "langle": ("op", "<|"), "rangle": ("op", "|>"), "{": ("op", "\\{"), "}": ("op", "\\}"),
    "lbrace": ("op", "\\{"), "rbrace": ("op", "\\}"), "lbrack": ("op", "["), "rbrack": ("op", "]"),
    "\\": ("op", "\\\\"), "and": ("op", ","), "wedge": ("op", ","), "lor": ("op", ","), "vee": ("op", ","),
    "currency": ("unit", "dollar"), "euro": ("unit", "euro"), "pound": ("unit", "pound sterling"),
    "emptyset": ("name", "emptyset"), "varnothing": ("name", "emptyset"), "triangle": ("word", "triangle"),
    "angle": ("word", "angle"), "to": ("op", "to"), "rightarrow": ("op", "to"), "implies": ("op", "to"),
    "Rightarrow": ("op", "to"),
}  # fmt: skip

# Longest first: the lexer takes the first that fits.
OPERATORS: dict[str, str] = {
    "<=": "<=", ">=": ">=", "!=": "!=", "==": "=", "=<": "<=", "->": "to",
    **{c: c for c in "+-*/^_()[]{}|<>=!%,;:'&#"}, '"': "'",
}  # fmt: skip

_UNIT_NAMES: dict[str, str] = {
    "cm": "cm", "centimeter": "cm", "centimetre": "cm", "mm": "mm", "millimeter": "mm", "millimetre": "mm",
    "km": "km", "kilometer": "km", "kilometre": "km", "meter": "m", "metre": "m", "inch": "inch", "foot": "foot",
    "ft": "foot", "feet": "foot", "yard": "yard", "yd": "yard", "mile": "mile", "mi": "mile", "kg": "kg",
    "kilogram": "kg", "gram": "g", "mg": "mg", "pound": "pound", "lb": "pound", "ounce": "ounce", "oz": "ounce",
    "ton": "ton", "second": "second", "sec": "second", "minute": "minute", "hour": "hour", "hr": "hour",
    "day": "day", "week": "week", "month": "month", "year": "year", "dollar": "dollar", "usd": "dollar",
    "cent": "cent", "euro": "euro", "degree": "degree", "deg": "degree", "radian": "radian", "rad": "radian",
    "liter": "liter",
    "litre": "liter", "ml": "ml", "milliliter": "ml", "gallon": "gallon", "mph": "mile/hour", "kph": "km/hour",
    "newton": "newton", "joule": "joule", "watt": "watt", "volt": "volt", "ohm": "ohm", "hz": "hertz",
    "percent": "percent", "percentage": "percent", "pct": "percent", "square": "square", "sq": "square",
    "cubic": "cubic", "per": "per",
}  # fmt: skip
UNITS: dict[str, str] = {
    **_UNIT_NAMES,
    **{f"{name}s": unit for name, unit in _UNIT_NAMES.items() if len(name) > 1 and name not in ("per", "feet")},
    "inches": "inch",
}

# Words that multiply the number before them.
SCALES: dict[str, int] = {
    "hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12,
}  # fmt: skip

# Halves of the day: 10 am is not 10 pm. Only after a number, since they are products of variables elsewhere.
DAY_HALVES: dict[str, str] = {"am": "am", "pm": "pm"}

# One-letter units need a hint that they are units: \text{}, or a space after a number and no such variable.
UNIT_SYMBOLS: dict[str, str] = {
    "m": "m", "g": "g", "s": "second", "h": "hour", "L": "liter", "l": "liter", "A": "ampere", "V": "volt",
    "W": "watt", "N": "newton", "J": "joule", "K": "kelvin", "C": "celsius", "F": "fahrenheit",
}  # fmt: skip
