"""Texts that tokenizers tend to get wrong."""

from __future__ import annotations

TEXTS = (
    "",
    " ",
    "Hello, world!",
    "  leading and trailing  ",
    "The year 2024 had 366 days; 3.14159 and 1,000,000 and 0x7f and ½ and ² and Ⅷ.",
    "I'll say it's what we've done, they're sure he'd agree; I'M NOT, IT'S 'quoted'.",
    "def f(x: int) -> list[int]:\n    return [x**2 for _ in range(10)]  # comment\n\n\n\tif x:\n\t\treturn None\n",
    "for (int i = 0; i < n; ++i) { a[i] += b[i] * 2; }\r\n\r\n// done\r\n",
    "tabs\t\tand  double   triple    quadruple     spaces\n\n\n\n   x   \n  ",
    "你好，世界！今天天气怎么样？",
    "日本語のテキスト、カタカナ、ひらがな。",
    "한국어 텍스트입니다. 안녕하세요!",
    "مرحبا بالعالم، كيف حالك؟ שלום עולם",
    "Ελληνικά, Русский язык, ไทย, हिन्दी में लिखा",
    "e\u0301 is not é; ﬁ ligature; Å vs Å; ǅ; İstanbul; ß",
    "👨‍👩‍👧‍👦 family, 👩🏽‍🚀 astronaut, 🇫🇷 flag, 🏴󠁧󠁢󠁳󠁣󠁴󠁿 Scotland, ❤️ heart, 🤦🏼‍♂️",
    "zero\u200bwidth\u200djoiner\ufefftail \u00a0nbsp\u3000ideographic\u2028line",
    "!!!??? ... --- === ___ ~~~ @@@ ### $$$ %%% ^^^ &&& *** ((())) [[[]]] {{{}}} <<<>>> |||",
    "https://example.org/path?query=1&other=%20x#fragment user.name+tag@example.org",
    '{"key": [1, 2.5e-10, null, true], "näh": "\\u00e9\\n"}',
    "$x^2 + \\frac{a}{b} = \\sqrt{\\pi}$ ∀x∈ℝ: ∑ᵢ xᵢ ≤ ∞",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" * 4,
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<|endoftext|>",
    "almost <|im_start|<|im_start |><|im_end|><im_end> <tool_call>{}</tool_call> <s></s> [INST] <eos>",
)

CONTROL_TEXT = "<|im_start|>user\nHi <|im_end|>\n <|endoftext|><|im_start|>assistant\n"
