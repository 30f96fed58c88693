"""Check names: no catch-all modules, one word per thing, no shortened words.

The one idea: `vocabulary.toml` holds the words that are refused, each with the word to use, and the places where a refused
word is right all the same. Only definitions are looked at (modules, classes, functions, parameters, assigned names): what
other libraries call their things is theirs.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import PurePosixPath

from tools.tree import ROOT, Finding, Source, project_files, report

WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Refused words, each with what to say instead; `allowed` names patterns of paths per word."""

    modules: dict[str, str]
    identifiers: dict[str, str]
    allowed: dict[str, list[str]]

    def refuses(self, word: str, path: str) -> str | None:
        """What to say instead of `word` in this file, or None when the word is fine there."""
        if any(fnmatch(path, pattern) for pattern in self.allowed.get(word, [])):
            return None
        return self.identifiers.get(word)


@dataclass(frozen=True, slots=True)
class Name:
    """A name where it is defined."""

    text: str
    line: int


def words(name: str) -> list[str]:
    """The lower-case words of a snake_case or CamelCase name."""
    return [word.lower() for word in WORDS.findall(name)]


def definitions(tree: ast.Module) -> Iterator[Name]:
    """Every name that a module defines: classes, functions, parameters, assigned variables and attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield Name(node.name, node.lineno)
            case ast.arg():
                yield Name(node.arg, node.lineno)
            case ast.Name(ctx=ast.Store()):
                yield Name(node.id, node.lineno)
            case ast.Attribute(ctx=ast.Store()):
                yield Name(node.attr, node.lineno)
            case _:
                pass


def name_findings(source: Source, vocabulary: Vocabulary) -> Iterator[Finding]:
    """Names in one file that the vocabulary refuses."""
    for part in PurePosixPath(source.path).with_suffix("").parts:
        for word in words(part):
            if word in vocabulary.modules:
                yield Finding(source.path, 1, f"`{part}` says nothing: {vocabulary.modules[word]}")
    for name in definitions(source.parse()):
        for word in words(name.text):
            if instead := vocabulary.refuses(word, source.path):
                yield Finding(source.path, name.line, f"`{name.text}`: say `{instead}`, not `{word}`")


def check(sources: Iterable[Source], vocabulary: Vocabulary) -> list[Finding]:
    """All findings, one per name and file line."""
    return sorted(
        {finding for source in sources for finding in name_findings(source, vocabulary)}, key=lambda f: (f.path, f.line, f.message)
    )


def load_vocabulary(text: str) -> Vocabulary:
    """The vocabulary in a TOML text."""
    table = tomllib.loads(text)
    return Vocabulary(table["modules"], table["identifiers"], {word: list(entry["paths"]) for word, entry in table["allowed"].items()})


if __name__ == "__main__":
    vocabulary = load_vocabulary((ROOT / "tools/vocabulary.toml").read_text(encoding="utf-8"))
    sys.exit(report("names", check(project_files([".py"]), vocabulary)))
