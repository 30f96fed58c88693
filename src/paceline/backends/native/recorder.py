"""The third meaning of a forward pass: run nothing, write down what would be done.

The one idea: `Recorder` is an `Ops` whose arrays are `View`s, shaped names. `decoder.forward` called with it gives a program.
While recording, activations are quantised once per value and by the instruction that makes the value when it can; afterwards
`fuse` joins instructions, and `reuse_in_place` lets results overwrite inputs that nobody reads again.

It does not place values in memory or decide where threads meet: that is `arena`.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, groupby, pairwise

from paceline.backends.base import KvDtype, kv_head_bytes
from paceline.backends.native import _core
from paceline.backends.native.fuse import fuse
from paceline.backends.native.program import Attribute, Buffer, Frequencies, Instruction, Kind, Program, Rows, View
from paceline.formats.checkpoint import RawTensor
from paceline.formats.types import TensorType
from paceline.models.decoder import forward
from paceline.models.ops import Matrix, Vector
from paceline.models.rope import inverse_frequencies
from paceline.models.spec import Activation, AttentionSpec, ModelSpec, RopeSpec
from paceline.models.weights import ModelWeights

FLOAT_TYPES = frozenset({TensorType.F32, TensorType.F16, TensorType.BF16})

QUANTISING = frozenset({"embed", "rms_norm", "head_norm", "rope", "gated", "add", "softcap", "gather_rows"})
"""Opcodes that split by rows and so can quantise what they just wrote; attention can when its heads are whole blocks."""

IN_PLACE = {"head_norm": (0,), "rope": (0,), "softcap": (0,), "add": (0, 1), "linear": (1,)}
"""Which inputs an opcode may write over: each output number needs of them only those of its own head and row."""


def record(spec: ModelSpec, weights: ModelWeights, kv_dtype: KvDtype = "int16") -> Program:
    """The program of a model's forward pass."""
    recorder = Recorder(kv_dtype)
    return recorder.finish(forward(recorder, spec, weights))


def is_quantised(part: RawTensor) -> bool:
    """Whether a part multiplies int8 activations (float types, and types kept as float, do not)."""
    return part.type not in FLOAT_TYPES and _core.packed_type_for(part.type.value) >= 0


def alike(matrix: Matrix, bias: Vector | None) -> list[tuple[Matrix, Vector | None]]:
    """A matrix and its bias, cut where the parts change between quantised and float."""
    runs = [tuple(parts) for _, parts in groupby(matrix.parts, is_quantised)]
    if len(runs) == 1:
        return [(matrix, bias)]
    ends = list(accumulate(sum(part.shape[0] for part in run) for run in runs))
    biases = [None if bias is None else Vector(bias.name, bias.data[start:end]) for start, end in pairwise([0, *ends])]
    return [(Matrix(f"{matrix.name}.{i}", run), own) for i, (run, own) in enumerate(zip(runs, biases, strict=True))]


class Recorder:
    """`Ops[View]` that appends instructions. Errors: AssertionError when shapes do not fit"""

    def __init__(self, kv_dtype: KvDtype = "int16") -> None:
        self._kv_dtype: KvDtype = kv_dtype
        self.instructions: list[Instruction] = []
        self._num_buffers = 0
        self._kv_bytes = 0
        self._kv_offsets: dict[int, int] = {}
        self._producers: dict[View, int] = {}
        self._activations: dict[View, Buffer] = {}
        self._angles: dict[RopeSpec, View] = {}
        self._inputs = {
            name: Buffer(name, rows, 1, Kind.INPUT).whole
            for name, rows in (("token_ids", Rows.TOKENS), ("positions", Rows.TOKENS), ("row_indices", Rows.LOGITS))
        }

    @property
    def token_ids(self) -> View:
        """The step's token ids [T]."""
        return self._inputs["token_ids"]

    @property
    def positions(self) -> View:
        """The step's positions [T]."""
        return self._inputs["positions"]

    @property
    def row_indices(self) -> View:
        """Which tokens need logits [R]."""
        return self._inputs["row_indices"]

    def embed(self, table: Matrix, token_ids: View, scale: float) -> View:
        """Rows of `table` times `scale`."""
        assert token_ids is self.token_ids, "the program embeds the step's own tokens"
        return self._append(Instruction("embed", Rows.TOKENS, (token_ids,), matrix=table, attributes={"scale": scale}), table.num_cols)

    def rms_norm(self, x: View, weight: Vector, eps: float) -> View:
        """The norm of each row."""
        assert weight.data.shape == (x.cols,)
        return self._append(Instruction("rms_norm", x.rows, (x,), vector=weight, attributes={"eps": eps}), x.cols)

    def linear(self, x: View, weight: Matrix, bias: Vector | None = None) -> View:
        """x · weightᵀ + bias, over int8 activations when the weight is quantised."""
        assert weight.num_cols == x.cols
        assert bias is None or bias.data.shape == (weight.num_rows,)
        runs = alike(weight, bias)
        out = self._new_buffer(x.rows, weight.num_rows).whole
        views = self.split(out, tuple(matrix.num_rows for matrix, _ in runs))
        for (matrix, vector), view in zip(runs, views, strict=True):
            source = self._quantize(x).whole if is_quantised(matrix.parts[0]) else x
            self.instructions.append(Instruction("linear", x.rows, (source,), view, matrix=matrix, vector=vector))
        return out

    def split(self, x: View, sizes: tuple[int, ...]) -> tuple[View, ...]:
        """Adjacent column ranges, without an instruction."""
        assert sum(sizes) == x.cols
        starts = [x.column + sum(sizes[:i]) for i in range(len(sizes))]
        return tuple(View(x.buffer, start, size) for start, size in zip(starts, sizes, strict=True))

    def head_norm(self, x: View, weight: Vector, eps: float) -> View:
        """The norm of each head."""
        head_dim = len(weight.data)
        assert x.cols % head_dim == 0
        shape: dict[str, Attribute] = {"head_dim": head_dim, "eps": eps}
        return self._append(Instruction("head_norm", x.rows, (x,), vector=weight, attributes=shape), x.cols)

    def rope(self, x: View, positions: View, spec: RopeSpec, head_dim: int) -> View:
        """x rotated; the angles of a spec are computed once per step, by an instruction of their own."""
        assert positions is self.positions
        assert x.cols % head_dim == 0
        assert spec.dim % 2 == 0
        assert spec.dim <= head_dim
        if spec not in self._angles:
            frequencies = Frequencies(f"frequencies.{len(self._angles)}", inverse_frequencies(spec))
            self._angles[spec] = self._append(Instruction("angles", Rows.TOKENS, (positions,), vector=frequencies), spec.dim)
        shape: dict[str, Attribute] = {"head_dim": head_dim, "rope_dim": spec.dim}
        return self._append(Instruction("rope", x.rows, (x, self._angles[spec]), attributes=shape), x.cols)

    def attention(self, q: View, k: View, v: View, layer: int, spec: AttentionSpec) -> View:
        """Write k and v into the layer's cache, then attend."""
        assert q.cols == spec.num_heads * spec.head_dim
        assert k.cols == v.cols == spec.num_kv_heads * spec.head_dim
        assert spec.num_heads % spec.num_kv_heads == 0
        assert spec.head_dim <= _core.MAX_HEAD_DIM
        assert layer not in self._kv_offsets, "one attention per layer"
        self._kv_offsets[layer] = offset = self._kv_bytes
        self._kv_bytes += spec.num_kv_heads * kv_head_bytes(self._kv_dtype, spec.head_dim)
        shape: dict[str, Attribute] = {"kv_offset": offset, "num_kv_heads": spec.num_kv_heads, "head_dim": spec.head_dim}
        self.instructions.append(Instruction("kv_write", Rows.TOKENS, (k, v), attributes=shape))
        shape = {**shape, "num_heads": spec.num_heads, "scale": spec.scale}
        if spec.window is not None:
            shape["window"] = spec.window
        if spec.softcap is not None:
            shape["softcap"] = spec.softcap
        return self._append(Instruction("attention", Rows.TOKENS, (q,), attributes=shape), q.cols)

    def gated(self, gate_up: View, activation: Activation) -> View:
        """act(gate) · up."""
        assert gate_up.cols % 2 == 0
        shape: dict[str, Attribute] = {"activation": activation.value}
        return self._append(Instruction("gated", gate_up.rows, (gate_up,), attributes=shape), gate_up.cols // 2)

    def add(self, x: View, y: View) -> View:
        """x + y."""
        assert x.cols == y.cols
        assert x.rows is y.rows
        return self._append(Instruction("add", x.rows, (x, y)), x.cols)

    def gather_rows(self, x: View, row_indices: View) -> View:
        """The rows that need logits."""
        assert row_indices is self.row_indices
        return self._append(Instruction("gather_rows", Rows.LOGITS, (x,)), x.cols)

    def softcap(self, x: View, cap: float) -> View:
        """cap · tanh(x / cap)."""
        return self._append(Instruction("softcap", x.rows, (x,), attributes={"softcap": cap}), x.cols)

    def finish(self, logits: View) -> Program:
        """The recorded program, improved. The recorder must not be used after."""
        assert logits.rows is Rows.LOGITS
        return reuse_in_place(fuse(Program(tuple(self.instructions), logits, self._kv_dtype, self._kv_bytes)))

    def _append(self, instruction: Instruction, cols: int) -> View:
        """Write the instruction down with a new result of `cols` columns."""
        out = self._new_buffer(instruction.rows, cols).whole
        self.instructions.append(replace(instruction, out=out))
        has_block_heads = instruction.opcode == "attention" and int(instruction.attributes["head_dim"]) % _core.QUANT_BLOCK == 0
        if instruction.opcode in QUANTISING or has_block_heads:
            self._producers[out] = len(self.instructions) - 1
        return out

    def _quantize(self, x: View) -> Buffer:
        """The int8 form of x: made once, by x's own instruction when that splits by rows."""
        if x not in self._activations:
            self._activations[x] = buffer = self._new_buffer(x.rows, x.cols, Kind.ACTIVATIONS)
            producer = self._producers.get(x)
            if producer is None:
                self.instructions.append(Instruction("quantize", x.rows, (x,), activations=buffer))
            else:
                self.instructions[producer] = replace(self.instructions[producer], activations=buffer)
        return self._activations[x]

    def _new_buffer(self, rows: Rows, cols: int, kind: Kind = Kind.F32) -> Buffer:
        self._num_buffers += 1
        return Buffer(f"%{self._num_buffers - 1}", rows, cols, kind)


def reuse_in_place(program: Program) -> Program:
    """Let instructions write over an input that no later instruction reads."""
    places = Places(program)
    instructions = []
    for index, instruction in enumerate(program.instructions):
        inputs = tuple(places.find(view) for view in instruction.inputs)
        candidates = [inputs[i] for i in IN_PLACE.get(instruction.opcode, ()) if i < len(inputs)]
        target = next((view for view in candidates if not places.is_read_after(view, index)), None)
        # A linear layer reads all of its first input for each number of its second.
        is_free = instruction.opcode != "linear" or target is None or not target.overlaps(inputs[0])
        if target is not None and instruction.out is not None and is_free:
            places.move(instruction.out.buffer, target)
        out = None if instruction.out is None else places.find(instruction.out)
        instructions.append(replace(instruction, inputs=inputs, out=out))
    return replace(program, instructions=tuple(instructions), logits=places.find(program.logits))


class Places:
    """Where the recorded buffers are moved to, and who reads what when."""

    def __init__(self, program: Program) -> None:
        self._targets: dict[Buffer, View] = {}
        self._tenants: dict[Buffer, list[Buffer]] = {}
        self._reads: dict[Buffer, list[tuple[int, View]]] = {}
        for index, instruction in enumerate(program.instructions):
            for view in instruction.inputs:
                self._reads.setdefault(view.buffer, []).append((index, view))
        self._reads.setdefault(program.logits.buffer, []).append((len(program.instructions), program.logits))

    def find(self, view: View) -> View:
        """A recorded view at its place."""
        target = self._targets.get(view.buffer)
        return view if target is None else View(target.buffer, target.column + view.column, view.cols)

    def move(self, buffer: Buffer, target: View) -> None:
        """Put a recorded buffer into `target`, a place that is its own."""
        self._targets[buffer] = target
        self._tenants.setdefault(target.buffer, []).append(buffer)

    def is_read_after(self, place: View, index: int) -> bool:
        """Whether an instruction after `index` reads a number at `place`."""
        tenants = [place.buffer, *self._tenants.get(place.buffer, [])]
        reads = (read for buffer in tenants for read in self._reads.get(buffer, []))
        return any(when > index and self.find(view).overlaps(place) for when, view in reads)
