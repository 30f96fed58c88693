"""Chat templates: from messages to the text that a model was trained to continue.

The one idea: a template is a program that came with a model file, so it runs in jinja2's sandbox with a short list of filters and
methods, and under a budget (`template_limits.py`): a step is taken in every loop and call, and whatever can grow is priced first.
For templates that stay within it, the output is that of `transformers`' `apply_chat_template`, character for character.

It makes text; how that becomes token ids, with marks that users cannot forge, is `prompt.py`'s.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import wraps
from types import BuiltinMethodType
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import FILTERS, make_attrgetter
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.tests import TESTS
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from paceline.errors import ModelError, RequestError
from paceline.text import template_limits as limits
from paceline.text.messages import template_messages, texts_within, unused_characters
from paceline.text.template_limits import RenderBudget, TemplateLimitError
from paceline.text.vocabulary import Vocabulary

MAX_TEMPLATE_CHARS = 256 << 10

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PLAIN = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)

_FILTERS = (
    *("abs", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "groupby", "int"),
    *("items", "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "reverse"),
    *("safe", "select", "selectattr", "sort", "string", "striptags", "title", "trim", "unique", "upper", "urlencode", "wordcount"),
)
_PYTHON_ERRORS = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError, MemoryError)


class ChatTemplate:
    """A compiled chat template. Rendering is safe from several threads."""

    def __init__(
        self,
        source: str,
        *,
        bos_token: str = "",
        eos_token: str = "",
        note: str | None = None,
        now: Callable[[], datetime] = datetime.now,
        timeout_s: float = limits.RENDER_TIMEOUT_S,
    ) -> None:
        """`note` says where the template is from when it is not the model's own. Errors: ModelError for one that is no template."""
        if len(source) > MAX_TEMPLATE_CHARS:
            raise ModelError(f"The chat template has {len(source)} characters; expected at most {MAX_TEMPLATE_CHARS}.")
        self.source = source
        self.note = note
        self._timeout_s = timeout_s
        self._environment = _Environment(now)
        self._marks = {"bos_token": bos_token, "eos_token": eos_token}
        try:
            self._template = self._environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise ModelError(f"The chat template does not compile: {error.message} (line {error.lineno}).") from error
        except (RecursionError, SyntaxError, ValueError, MemoryError) as error:
            raise ModelError(f"The chat template does not compile: {error}.") from error

    def render(
        self,
        messages: object,
        /,
        *,
        tools: list[dict[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        **variables: object,
    ) -> str:
        """The text of a chat.

        With `continue_final_message` it ends with the last message's content, as it was written, for the model to go on from there;
        `add_generation_prompt` then means nothing.
        Errors:  RequestError naming `messages`: ill-formed ones, the template's own refusal, a cost beyond the limits
        """
        checked = template_messages(messages)
        if continue_final_message:
            end_mark = next(unused_characters([self.source, *texts_within([checked, tools, variables])]))
            checked[-1]["content"] += end_mark
            add_generation_prompt = False
        values = {**self._marks, **variables, "messages": checked, "tools": tools, "add_generation_prompt": add_generation_prompt}
        text = self._render(values)
        if not continue_final_message:
            return text
        before, found, _ = text.rpartition(end_mark)
        if not found:
            raise RequestError("The chat template leaves the last message out, so it cannot be continued.", param="messages")
        return before

    def _render(self, values: Mapping[str, object]) -> str:
        budget = RenderBudget(self._timeout_s)
        try:
            with self._environment.spending(budget):
                return limits.collected(budget, self._template.generate(values))
        except (jinja2.TemplateError, TemplateLimitError) as error:
            raise RequestError(str(error) or type(error).__name__, param="messages", code="chat_template_error") from error
        except _PYTHON_ERRORS as error:
            message = f"The chat template cannot render these messages: {type(error).__name__}: {error}"
            raise RequestError(message, param="messages", code="chat_template_error") from error


def chat_template_for(vocabulary: Vocabulary, source: str | None = None) -> ChatTemplate:
    """The chat template of a model: the given one, else its own, else a plain one that its vocabulary allows, with a note.

    Errors:  ModelError for a template that does not compile
    """
    bos, eos = (vocabulary.token_text(i) for i in (vocabulary.bos_id, next(iter(vocabulary.eos_ids), None)))
    note = None
    if source is None and vocabulary.chat_template is None:
        is_chatml = "<|im_start|>" in vocabulary.control_ids
        source = CHATML if is_chatml else PLAIN
        note = f"The model brings no chat template; {'ChatML' if is_chatml else 'plain `role: content` lines'} will do."
    return ChatTemplate(source or vocabulary.chat_template or "", bos_token=bos, eos_token=eos, note=note)


class _Environment(ImmutableSandboxedEnvironment):
    """jinja2's sandbox with a budget: every loop, call, filter and growing operation comes by here."""

    intercepted_binops = frozenset(("+", "-", "*", "**", "%"))

    def __init__(self, now: Callable[[], datetime]) -> None:
        # Not optimised: jinja2's optimiser would run filters at compile time, outside any budget.
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, optimized=False, finalize=self.printed, extensions=[_Generation, loopcontrols]
        )
        self._local = threading.local()
        self.concat = self._concat  # type: ignore[method-assign]
        self.tests = {name: self._priced(test) for name, test in TESTS.items()}
        self.filters = {name: self._priced(FILTERS[name]) for name in _FILTERS}
        self.filters |= {"tojson": self._tojson, "join": self._join, "replace": self._replace, "indent": self._indent}
        self.filters |= {"format": self._format, "round": self._round}
        self.globals = {"range": self.globals["range"], "dict": self._dict, "namespace": _Namespace}
        self.globals |= {"raise_exception": _refuse, "strftime_now": lambda form: now().strftime(str(form))}

    @property
    def budget(self) -> RenderBudget:
        """What the render on this thread may still spend."""
        budget: RenderBudget = self._local.budget
        return budget

    @contextmanager
    def spending(self, budget: RenderBudget) -> Iterator[None]:
        """A scope in which renders on this thread spend from `budget`."""
        self._local.budget = budget
        try:
            yield
        finally:
            del self._local.budget

    # What `_Metering` puts into a template's own code.

    def count_step(self) -> None:
        """One turn of a loop."""
        self.budget.count_step()

    def concatenated(self, *parts: object) -> str:
        """The `~` operator."""
        return limits.joined(self.budget, "", parts)

    def bounded(self, value: object) -> object:
        """A value that may hold others many times over, paid for as it prints."""
        self.budget.charge(limits.printed_size(value))
        return value

    # What jinja2 calls.

    def printed(self, value: object) -> object:
        """A value about to be printed."""
        return value if isinstance(value, str) else self.bounded(value)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """A binary operation, priced first."""
        limits.check_operation(self.budget, operator, left, right)
        return super().call_binop(context, operator, left, right)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Subscription; a slice is paid for."""
        value = super().getitem(obj, argument)
        if isinstance(argument, slice):
            self.budget.charge(len(value) if isinstance(value, str) else 8 * len(value))
        return value

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`str.format` by the sandbox's own rules, priced first; `format_map` not at all."""
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None

        def formatted(*arguments: Any, **named: Any) -> str:
            if value.__name__ != "format":
                raise SecurityError("Chat templates may not call `format_map`.")
            limits.check_fields(self.budget, value.__self__, [*arguments, *named.values()])
            return wrapped(*arguments, **named)

        return formatted

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """A call: one step; a method of a built-in value must be on the list; the result is paid for."""
        __self.budget.count_step()
        if isinstance(__obj, BuiltinMethodType):
            # Compiled code passes its own variables by names that begin with an underscore.
            result = __self._call_method(__obj, args, {name: value for name, value in kwargs.items() if name[0] != "_"})
        else:
            result = super().call(__context, __obj, *args, **kwargs)
        return __self._paid(result)

    def _call_method(self, method: BuiltinMethodType, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        owner, name = method.__self__, method.__name__
        kind = next((kind for kind in limits.ALLOWED_METHODS if isinstance(owner, kind)), None)
        if kind is None or name not in limits.ALLOWED_METHODS[kind]:
            raise SecurityError(f"Chat templates may not call `{name}` of a {type(owner).__name__}.")
        if isinstance(owner, str) and name in limits.GROWING_METHODS:
            return limits.call_growing_method(self.budget, owner, name, arguments, named)
        return method(*arguments, **named)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Metering().visit(super()._parse(source, name, filename))
        tree.set_environment(self)
        return tree

    def _paid(self, value: Any) -> Any:
        return self.bounded(value) if isinstance(value, (str, list, tuple, dict)) else value

    def _priced(self, function: Any) -> Callable[..., Any]:
        """A filter or test that takes a step and pays for its result."""

        @wraps(function)
        def priced(*arguments: Any, **named: Any) -> Any:
            self.budget.count_step()
            return self._paid(function(*arguments, **named))

        return priced

    # Filters and globals of our own: those that can grow, and `tojson` as `transformers` has it.

    def _concat(self, parts: Iterable[str]) -> str:
        return limits.joined(self.budget, "", parts)

    def _dict(self, *arguments: Any, **named: Any) -> object:
        return self.bounded(dict(*arguments, **named))

    def _join(self, value: Iterable[object], d: str = "", attribute: str | int | None = None) -> str:
        items = value if attribute is None else map(make_attrgetter(self, attribute), value)
        return limits.joined(self.budget, str(d), items)

    def _replace(self, text: object, old: object, new: object, count: int | None = None) -> str:
        arguments = (str(text), str(old), str(new))
        return limits.replaced(self.budget, *arguments, -1 if count is None else count)

    def _indent(self, text: object, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
        limits.check_width(width)
        value = str(text)
        self.budget.charge(len(value) + (1 + value.count("\n")) * (len(width) if isinstance(width, str) else width))
        return str(FILTERS["indent"](value, width, first, blank))

    def _format(self, text: object, *arguments: object, **named: object) -> str:
        value = str(text)
        limits.check_operation(self.budget, "%", value, named or arguments)
        return value % (named or arguments)

    def _round(self, value: float, precision: int = 0, method: str = "common") -> Any:
        limits.check_width(precision)
        return FILTERS["round"](value, precision, method)

    def _tojson(self, value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False) -> str:
        limits.check_width(indent)
        self.bounded(value)
        encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
        if indent is None:
            return str(self._paid(encoder.encode(value)))
        # Indentation grows with depth times width times entries, so it is counted as it comes.
        return limits.collected(self.budget, encoder.iterencode(value))


class _Metering(NodeTransformer):
    """Puts the budget into a template's code, by names that no template can spell or shadow."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        """Every turn of a loop is a step."""
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_environment_call("count_step", [], node.lineno), lineno=node.lineno))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Call:
        """`~` is priced."""
        self.generic_visit(node)
        return _environment_call("concatenated", node.nodes, node.lineno)

    def visit_List(self, node: nodes.List) -> nodes.Expr:
        """A list written out is measured, as a value that nests."""
        self.generic_visit(node)
        return _environment_call("bounded", [node], node.lineno)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Expr:
        """A dict written out is measured."""
        self.generic_visit(node)
        return _environment_call("bounded", [node], node.lineno)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:
        """A tuple written out is measured; one that is assigned to is no value."""
        self.generic_visit(node)
        return node if node.ctx != "load" else _environment_call("bounded", [node], node.lineno)


class _Generation(Extension):
    """`{% generation %}…{% endgeneration %}` marks what a model is trained on; to render, it is only a scope."""

    tags = frozenset(("generation",))  # type: ignore[assignment]

    def parse(self, parser: Parser) -> nodes.Node:
        """The body, as it is."""
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class _Namespace(Namespace):
    """jinja2's `namespace`, without private names, and without its content when printed."""

    def __setitem__(self, name: str, value: object) -> None:
        if name.startswith("_"):
            raise SecurityError(f"Chat templates may not set `{name}` of a namespace.")
        super().__setitem__(name, value)

    def __repr__(self) -> str:
        return "<namespace>"


def _environment_call(name: str, arguments: list[nodes.Expr], line: int) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(name), arguments, [], None, None, lineno=line)


def _refuse(message: object) -> None:
    raise jinja2.TemplateError(str(message))
