"""How byte-level vocabularies cut text into words before merging, by the name that GGUF's `tokenizer.ggml.pre` gives.

The one idea: a table of data. Each rule is a list of patterns applied in turn, every match a word of its own, what lies between
matches too; merges never cross a word. A wrong rule gives other tokens, and an answer that is worse without any error, so a name
that is not in this table is refused; only a file that names no rule (`default`) gets GPT-2's, with a warning.

Source:  the `pre_tokenizer` sections of the published tokenizer.json files of the named models
"""

from __future__ import annotations

from dataclasses import dataclass

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN2 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _TAIL
_LLAMA3 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _TAIL
_QWEN35 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LEAD = r"[^\r\n\p{L}\p{N}]?"
_TEKKEN = f"{_LEAD}{_UPPER}*{_LOWER}+|{_LEAD}{_UPPER}+{_LOWER}*" + r"|\p{N}" + _CASED_TAIL
_GPT4O = f"{_LEAD}{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|{_LEAD}{_UPPER}+{_LOWER}*{_CONTRACTIONS}?" + r"|\p{N}{1,3}" + _CASED_TAIL
_DEEPSEEK3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class PreTokenizerRule:
    """How one family of models prepares text for its merges."""

    patterns: tuple[str, ...]
    takes_whole_words: bool = False
    """A word that is a token already is not merged anew (`ignore_merges`)."""
    adds_bos: bool = False
    """Whether a prompt begins with BOS where the file does not say."""
    is_nfc: bool = False
    """Whether text is brought to Unicode's composed form first."""


_RULES = {
    ("gpt-2", "gpt2", "mpt", "olmo", "phi-2"): PreTokenizerRule((_GPT2,)),
    ("smollm", "starcoder", "refact", "codeshell"): PreTokenizerRule((r"\p{N}", _GPT2)),
    ("qwen2",): PreTokenizerRule((_QWEN2,), is_nfc=True),
    ("deepseek-r1-qwen",): PreTokenizerRule((_QWEN2,)),
    ("qwen35",): PreTokenizerRule((_QWEN35,), is_nfc=True),
    ("llama-bpe", "llama3", "llama-v3", "falcon3"): PreTokenizerRule((_LLAMA3,), takes_whole_words=True, adds_bos=True),
    ("tekken",): PreTokenizerRule((_TEKKEN,), takes_whole_words=True, adds_bos=True),
    ("gpt-4o", "llama4"): PreTokenizerRule((_GPT4O,)),
    ("deepseek-v3",): PreTokenizerRule((r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", _DEEPSEEK3)),
    ("deepseek-coder",): PreTokenizerRule((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}")),
}
RULES: dict[str, PreTokenizerRule] = {name: rule for names, rule in _RULES.items() for name in names}
"""Every known rule by its `tokenizer.ggml.pre` name."""

FALLBACK = RULES["gpt-2"]
"""What a file that names no rule gets."""
