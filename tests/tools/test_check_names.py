"""The name check finds catch-all modules, synonyms and shortened words where they are defined."""

from __future__ import annotations

from tools.check_names import check, load_vocabulary, words
from tools.tree import ROOT, Source

VOCABULARY = load_vocabulary("""
[modules]
utils = "name the noun"
[identifiers]
page = "block"
idx = "index"
[allowed.page]
reason = "the web page"
paths = ["src/web/*"]
""")


def messages(path: str, text: str = "") -> list[str]:
    return [finding.message for finding in check([Source(path, text)], VOCABULARY)]


def test_words_of_a_name() -> None:
    assert words("num_KVPages_left2") == ["num", "kv", "pages", "left", "2"]


def test_catch_all_module_is_found_as_file_and_folder() -> None:
    assert messages("src/utils.py") == ["`utils` says nothing: name the noun"]
    assert messages("src/text_utils/a.py") == ["`text_utils` says nothing: name the noun"]


def test_every_kind_of_definition_is_looked_at() -> None:
    text = "class Page: ...\ndef free_page(idx): ...\nself.idx = 1\nfor page in x: ...\n"
    assert len(messages("src/a.py", text)) == 5


def test_uses_of_other_peoples_names_are_fine() -> None:
    assert messages("src/a.py", "x = library.page(idx=3)\n") == []


def test_allowed_path_may_use_the_word() -> None:
    assert messages("src/web/a.py", "page = 1\n") == []
    assert messages("src/web/a.py", "idx = 1\n") != []


def test_every_allowance_of_the_project_has_a_reason() -> None:
    import tomllib

    table = tomllib.loads((ROOT / "tools/vocabulary.toml").read_text(encoding="utf-8"))
    assert all(entry["reason"] and entry["paths"] for entry in table["allowed"].values())
