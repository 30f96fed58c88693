"""What the routes share: the engine's client, the model's text side, names, counters, and whether requests are taken.

The one idea: there is one `ServerState` per server, handed to the app; nothing in `serve/` is a module-level variable.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from paceline.config import ServeConfig
from paceline.engine.client import EngineClient
from paceline.errors import NotFoundError
from paceline.formats.catalog import name_of_file
from paceline.observe.metrics import ServerMetrics
from paceline.serve.failures import UnavailableError
from paceline.serve.openai.sampling import GenerationDefaults
from paceline.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from paceline.text.prompt import ChatEncoder

Health = Literal["loading", "ready", "draining", "dead"]
INLINE_BYTES = 4096
"""Texts of bodies up to this size are tokenised on the event loop: it takes well under a millisecond, less than a thread's switch."""

TEXT_THREADS = 2
"""So that one very long prompt does not hold up all the others."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ModelText:
    """The text side of a model, loaded in this process."""

    tokenizer: Tokenizer
    chat: ChatEncoder
    defaults: GenerationDefaults


@dataclass(frozen=True, slots=True)
class ModelNames:
    """What the served model answers to: `primary` in answers, the others accepted; `root` is where it came from."""

    primary: str
    others: frozenset[str]
    root: str


def model_names(config: ServeConfig, asked: str, path: Path) -> ModelNames:
    """The names from the config, else the name asked for: a catalog name, or a file's stem. The catalog's name is always taken too."""
    default = path.stem if Path(asked).exists() else asked
    served = config.served_model_name or (default,)
    others = frozenset((*served, default, asked, str(path), path.name, name_of_file(path.name) or default))
    return ModelNames(served[0], others, path.name)


class ServerState:
    """One server's shared state."""

    def __init__(self, config: ServeConfig, client: EngineClient, names: ModelNames, *, seed: int) -> None:
        self.config = config
        self.client = client
        self.names = names
        self.metrics = ServerMetrics(names.primary)
        self.created = int(time.time())
        self.num_answering = 0
        self.is_draining = False
        self.model: ModelText | None = None
        self._seeds = random.Random(seed)
        self._executor = ThreadPoolExecutor(max_workers=TEXT_THREADS, thread_name_prefix="paceline-text")

    @property
    def health(self) -> Health:
        """Whether the server takes requests, and if not, why."""
        if self.client.state in ("dead", "closed"):
            return "dead"
        if self.is_draining:
            return "draining"
        return "ready" if self.client.state == "ready" and self.model is not None else "loading"

    def require_ready(self) -> ModelText:
        """The model's text side. Errors: UnavailableError (503) unless the server is ready."""
        health = self.health
        if health == "ready" and self.model is not None:
            return self.model
        reason = {"loading": "The model is still loading.", "draining": "The server is shutting down.", "dead": "The engine has stopped."}
        raise UnavailableError(reason[health], retry_after_s=1.0 if health == "loading" else 30.0)

    def check_model(self, name: str | None) -> str:
        """The name to answer with. Errors: NotFoundError (404) for a model that is not served."""
        if name is None:
            return self.names.primary
        if name != self.names.primary and name not in self.names.others:
            raise NotFoundError(
                f"The model `{name[:200]}` is not served here; expected `{self.names.primary}`.", param="model", code="model_not_found"
            )
        return name

    def draw_seed(self) -> int:
        """A seed for a request that brings none; exact in a JSON number of any client."""
        return self._seeds.getrandbits(48)

    async def run_text(self, work: Callable[[], T], *, size: int) -> T:
        """Render or tokenise: at once when short, else on a text thread, so that the event loop stays quick."""
        if size <= INLINE_BYTES:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def close(self) -> None:
        """Let go of the text threads."""
        self._executor.shutdown(wait=False, cancel_futures=True)
