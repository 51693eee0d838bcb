"""The words that the glossary retires, as patterns of their old meaning, and where they may not stand."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TEXT = {
    r"requests? under way|under way": "concurrent (in-flight) requests",
    r"\bshares? of\b(?! the (?:market|cost))|\b(?:a|the|its|their|this|no|one|every|each|same|whose) share\b": "fraction of peak; efficiency",
    r"\bexchang(?:e|es|ed|ing)\b": "all-to-all: dispatch, combine",
    r"\b(?:a|the|one|each|every|per|mixed|decode|prefill|whole|of|this|draft) pass\b": "forward pass",
    r"\b(?:mixed|decode|prefill|own|all|the|of|draft|several|two) passes\b": "forward passes",
    r"prompts? of others|others' prompts": "prefill interference",
    r"stays? in step|in waves|\ba wave\b": "synchronized batches",
    r"prompts? and (?:their )?answers?|answer tokens|(?:of|in|per) (?:an|the|their|long) answers?\b(?! to)": "output tokens",
    r"handed over|hand(?:s|ing)? over": "KV-cache transfer",
    r"two pools\b|pools? for (?:prompts|decoding)": "prefill and decode pools",
    r"co-?located|colocation": "aggregated",
    r"room in the cache|room in its cache": "KV-cache capacity",
    r"(?<!token-)(?<!token )prediction modules?": "MTP module",
    r"\blumped\b": "parameter-count model",
    r"layers that work on prompts|captured graphs?|(?:time|work) of the host\b|host's time": "eager prefill; CUDA graphs; CPU launch overhead",
    r"\bsmall operations?\b": "elementwise and normalization operations",
    r"wider (?:tensor-parallel )?degrees?|wide degrees?": "per-module tensor-parallel degree",
    r"\bhid(?:es?|ing)\b|hidden (?:behind|by|time)|(?:not|is|are|be|while|nothing is) hidden|unhidden": "overlapped, exposed",
    r"choos\w+ the best scores": "top-k selection",
    r"copies of (?:a|the) latent": "replicated across TP ranks",
    r"\bheld\b(?![- ]out)|\bfullest\b": "resident weights; KV-cache footprint; most loaded rank",
    r"\bledgers?\b": "operations",
    r"\bnumber types?\b": "dtype",
    r"chance (?:that )?a draft|chance of a draft": "acceptance rate",
    r"\bfactor sets?\b|\bsets? (?:that are )?about as probable": "efficiency profile; posterior samples",
    r"scales? of (?:the )?errors?|errors' scales?": "residual scale",
    r"\bbands?\b": "credible interval",
    r"(?:the|our|of|other|all|three|as) peers\b": "other tools",
    r"(?:within|meets?|met|miss\w*|below|above|under) (?:the|its|a|their|every|all) bars?\b|\bbars (?:met|missed|out of reach|that)": "acceptance criteria",
    r"\bthe post\b|\bseed [123]\b|\bseeds [123]\b": "[CHEETAH], [Qwen3-FLOPs], [Roofline]",
    r"\bmade[- ]up\b|\bsabotag\w+|\bsituations?\b|\bbeside\b": "synthetic; fault injection; strategies; with, alongside",
    r"\brefus(?:e|es|ed|al|ing)\b": "reject, raise",
    r"\btold\b|\bwanted\b|\bin words\b|\binto words\b": "callback; requested; label",
    r"\bmade for (?:a |the )?(?:length|context|tokens)": "maximum context",
    r"stands? [\d.]+ times below|the more a GPU yields|speed for each user|least cost": "x % of peak; interactivity; lowest cost",
}
"""Pattern of the old meaning -> what the field says."""

IDENTIFIERS = frozenset(
    [
        "found",
        "told",
        "wanted",
        "asked",
        "held",
        "beside",
        "fullest",
        "exchange",
        "exchanged",
        "ledger",
        "bands",
        "band",
        "colocated",
        "lumped",
        "refuse",
        "refused",
        "refusal",
        "answers",
        "peers",
        "sabotage",
        "situations",
        "hides",
        "waves",
        "words",
        "resident",
        "captured",
    ]
)
"""Words of identifiers (split at underscores and capitals) that are not used."""

ALLOWED = re.compile("resident_weights|.*held_out.*", re.IGNORECASE)
"""Names in which such a word has the field's meaning."""


def lines_of_text(path: Path) -> Iterator[tuple[int, str]]:
    """Lines of a page outside links' targets; of a module its docstrings."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        for number, line in enumerate(text.splitlines(), 1):
            yield number, re.sub(r"\]\([^)]*\)", "]", line)
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Module)) and ast.get_docstring(node):
            first = node.body[0]
            for offset, line in enumerate(str(ast.get_docstring(node, clean=False)).splitlines()):
                yield first.lineno + offset, line
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for offset, line in enumerate(node.value.value.splitlines()):
                yield node.lineno + offset, line
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


def retired_text(path: Path) -> Iterator[str]:
    """Retired words in the text of a page or module, each as one line."""
    for number, line in sorted(set(lines_of_text(path))):
        for pattern, better in TEXT.items():
            for match in re.finditer(pattern, line, re.IGNORECASE):
                yield f"{path}:{number}: {match.group()!r}: {better}"


def names_of(path: Path) -> Iterator[tuple[int, str]]:
    """Names that a module defines."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def retired_names(path: Path) -> Iterator[str]:
    """Retired words in the identifiers that a module defines."""
    for number, name in sorted(set(names_of(path))):
        if ALLOWED.fullmatch(name):
            continue
        words = {word.lower() for word in re.split(r"_|(?<=[a-z])(?=[A-Z])", name)}
        for word in sorted(words & IDENTIFIERS):
            yield f"{path}:{number}: {name}: {word}"
