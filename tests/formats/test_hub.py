"""Which names are hub ids, and which files of a repository they mean."""

from __future__ import annotations

import pytest

from paceline.errors import CapacityError, NotFoundError
from paceline.formats.hub import HubListing, choose_files, file_url, listing_url, parse_hub_name, parse_listing

QUANTS = ["README.md", "m-Q8_0.gguf", "m-Q4_K_M.gguf", "m-IQ4_XS.gguf", "m-Q4_0.gguf", "mmproj-m-Q4_K_M.gguf"]


@pytest.mark.parametrize(
    ("text", "repo", "wanted"),
    [
        ("Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", None),
        ("a/b:Q4_K_M", "a/b", "Q4_K_M"),
        ("a/b:sub/m-00001-of-00002.gguf", "a/b", "sub/m-00001-of-00002.gguf"),
    ],
)
def test_a_hub_id_is_read(text: str, repo: str, wanted: str | None) -> None:
    name = parse_hub_name(text)
    assert name is not None
    assert (name.repo, name.wanted, name.folder_name) == (repo, wanted, repo.replace("/", "--"))


@pytest.mark.parametrize(
    "text", ["", "a", "a/", "/a", "a/b/c", "../a", "./a", "a/b:", "a /b", "ä/b", "a/b\n", "a/" + "b" * 200, "http://a/b"]
)
def test_other_texts_are_no_hub_ids(text: str) -> None:
    assert parse_hub_name(text) is None


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        (None, "m-Q4_K_M.gguf"),
        ("Q8_0", "m-Q8_0.gguf"),
        ("q4_0", "m-Q4_0.gguf"),
        ("IQ4_XS", "m-IQ4_XS.gguf"),
        ("m-Q4_0.gguf", "m-Q4_0.gguf"),
    ],
)
def test_a_quantisation_or_a_file_name_chooses(wanted: str | None, chosen: str) -> None:
    assert choose_files(QUANTS, wanted) == [chosen]


def test_all_shards_come_with_the_first() -> None:
    shards = [f"q/m-Q4_K_M-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    for wanted in (None, "Q4_K_M", shards[0]):
        assert choose_files([*shards, "m-Q8_0.gguf"], wanted) == shards


def test_the_only_model_needs_no_known_quantisation() -> None:
    assert choose_files(["odd.gguf", "notes.txt"], None) == ["odd.gguf"]


def test_a_safetensors_repository_comes_with_its_side_files() -> None:
    names = ["config.json", "tokenizer.json", "a.safetensors", "b.safetensors", "model.safetensors.index.json", "pytorch_model.bin"]
    chosen = choose_files(names, None)
    assert chosen == ["config.json", "model.safetensors.index.json", "tokenizer.json", "a.safetensors", "b.safetensors"]


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (QUANTS, "Q2_K"),
        (QUANTS, "Q4"),
        (["a-Q4_0.gguf", "b-Q4_0.gguf"], "Q4_0"),
        (["a.gguf", "b.gguf"], None),
        (["pytorch_model.bin", "config.json"], None),
        ([], None),
        (["x-00002-of-00001.gguf"], None),
        (["mmproj-m.gguf"], None),
    ],
)
def test_what_cannot_be_chosen_is_not_guessed(names: list[str], wanted: str | None) -> None:
    with pytest.raises(NotFoundError, match="cannot be chosen; there is"):
        choose_files(names, wanted)


@pytest.mark.parametrize(
    "name", ["../m-Q4_0.gguf", "/m-Q4_0.gguf", "a/../m-Q4_0.gguf", "a/b/m-Q4_0.gguf", "a\\m-Q4_0.gguf", "m\n-Q4_0.gguf"]
)
def test_a_name_that_leads_out_of_the_folder_is_never_chosen(name: str) -> None:
    with pytest.raises(NotFoundError):
        choose_files([name], None)


def test_a_listing_gives_sizes_and_digests() -> None:
    siblings = [
        {"rfilename": "m.gguf", "size": 5, "lfs": {"sha256": "a" * 64}},
        {"rfilename": "config.json", "size": 2},
        {"rfilename": "odd", "size": True, "lfs": {"sha256": "no"}},
        {"name": "no file"},
        3,
    ]
    assert parse_listing({"siblings": siblings}) == {
        "m.gguf": HubListing("m.gguf", 5, "a" * 64),
        "config.json": HubListing("config.json", 2, None),
        "odd": HubListing("odd", None, None),
    }


@pytest.mark.parametrize("listing", [None, [], {}, {"siblings": 3}])
def test_a_listing_that_makes_no_sense_is_told(listing: object) -> None:
    with pytest.raises(CapacityError, match="listing is not what"):
        parse_listing(listing)


def test_addresses_are_quoted() -> None:
    assert file_url("http://hub", "a/b", "q/m 1#.gguf") == "http://hub/a/b/resolve/main/q/m%201%23.gguf"
    assert listing_url("http://hub", "a/b") == "http://hub/api/models/a/b?blobs=true"
