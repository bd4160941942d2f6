"""What a back end is: it reads a program of one kind into a graph, and writes back what a plan makes of the graph.

The driver (`transpiler.flow`) plans in between, and proves that what was written computes what was read. A back end plans
nothing and proves nothing; it says what a graph does not show, and refuses to write what it cannot say.
"""
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import (Any, Callable, ContextManager, FrozenSet, Hashable, List, Mapping, Optional,
                    Protocol, Sequence, Tuple)

from transpiler.analysis.cost import CostModel
from transpiler.analysis.segments import Segments
from transpiler.ir import Graph
from transpiler.runtime import Runtime

# What was done to a program; its back end notes it there, where copies and files keep it.
OPTIMIZED, RELEASED = 'transpiler.optimized', 'transpiler.released'

Origins = Mapping[
    int,
    int]  # by op of a new graph: the op of the old one that it stands for; added ops are missing


@dataclass(frozen=True)
class Declared:
    """Names of a program: those of its main region, those of all of its regions, and those that earlier calls took away, with
    the name of the memory that each has now."""

    main: FrozenSet[str]
    everywhere: FrozenSet[str]
    gone: Mapping[str, str]


@dataclass(frozen=True)
class Traced:
    """What a layer's function is made a program of: for training ('train', or 'no grad' where nobody asks for gradients)
    or not ('eval'), and its inputs as text."""

    mode: str
    inputs: str


@dataclass(frozen=True)
class MadeOf:
    """Which program it is, and the names of the parameters that it has."""

    program: Hashable
    parameters: FrozenSet[str]


@dataclass(frozen=True)
class Replanned:
    """Whether a plan has changed a program, and the names of what its backward part reads again since; some of it its caller has."""

    changed: bool = False
    again: FrozenSet[str] = frozenset()

    def and_also(self, other: Replanned) -> Replanned:
        """Of both."""
        return Replanned(self.changed or other.changed, self.again | other.again)


@dataclass(frozen=True)
class StepBytes:
    """What a step of training holds besides the program that it runs.

    Attributes:
        tensors: bytes of parameters and buffers, by name.
        gradients: bytes of all gradients: those of the step before stay until they are added to, as `clear_grad` sets them to zero.
        state: bytes that the optimizer keeps from its first step on; 0 if it is not known.
        updating: bytes that it needs while it works, besides gradients and state.
        optimizer: its class; '' if it is not known.
        before: bytes that programs which ran earlier in the step keep for their backward parts.
        parameters: names of those of the layer.
    """

    tensors: Mapping[str, int]
    gradients: int = 0
    state: int = 0
    updating: int = 0
    optimizer: str = ''
    before: int = 0
    parameters: FrozenSet[str] = frozenset()


class Imported(Protocol):
    """A program that was read. What a back end needs to write it back is there, too, and nobody else's business."""

    graph: Graph

    @property
    def declared(self) -> Declared:
        ...

    @property
    def inputs(self) -> FrozenSet[str]:
        """Names that a run feeds, or may."""
        ...

    @property
    def done(self) -> FrozenSet[str]:
        """Which of OPTIMIZED and RELEASED an earlier call has written there."""
        ...

    @property
    def closed(self) -> str:
        """Why nothing of it may be changed; '' if it may."""
        ...

    @property
    def under_way(self) -> int:
        """0 for a program that is all of what runs. If it is what runs for one of several small batches: of how many there is
        something at a time, at the most."""
        ...


class Backend(Protocol):
    """Programs of one kind. Every method but `apply` leaves the target as it is."""

    @property
    def runtime(self) -> Runtime:
        """What will run the programs, by the settings in force."""
        ...

    @property
    def cost(self) -> Optional[CostModel]:
        """How fast this machine runs them; None if nobody has measured it."""
        ...

    def session(self) -> ContextManager[None]:
        """What has to be so while the other methods are called.

        Raises:
            UnsupportedPaddleError: what runs the programs is not modelled.
        """
        ...

    def read(self, target: Any, fetched: FrozenSet[str], skipped: FrozenSet[str]) -> Imported:
        """The graph of `target`, with these names marked; those that it does not have are the caller's to refuse.

        Raises:
            InvalidProgramError: it is no program of this kind, or a damaged one.
        """
        ...

    def run_kernels(self, imported: Any) -> None:
        """Finds out what the kernels of `imported` allocate for themselves where reading does not tell: a budget must bear it."""
        ...

    def write(self,
              imported: Any,
              graph: Graph,
              held: FrozenSet[int],
              done: str,
              segments: Segments = ()) -> Any:
        """A program like `imported` with the ops, the order and the storages of `graph`, noted as `done` if that is a text.

        Args:
            held: regions whose order the runtime has to keep.
            segments: of the main region, to be run as regions of their own; only asked for where the request does.
        """
        ...

    def reread(self, imported: Any, written: Any) -> Tuple[Graph, Origins]:
        """The graph of what was written, from its serialized form alone, and what its ops are said to stand for.

        Raises:
            VerificationError: something is not as it was that graphs do not show.
        """
        ...

    def kept(self, written: Any) -> Callable[[], Any]:
        """What gives `written` once more, for `apply`, when the objects that it was made among are gone."""
        ...

    def apply(self, target: Any, written: Any) -> None:
        """Makes `target` the written program: wholly, or it raises and `target` is as it was."""
        ...


@dataclass(frozen=True)
class Packed:
    """A program for another process: `contents` in bytes, and what stands for the values that are fetched, ready for JSON."""

    contents: bytes
    handles: List[Any]


class LiveBackend(Backend, Protocol):
    """Programs that a user has in hand, and runs in this process."""

    def pack(self, target: Any, fetched: Sequence[str] = ()) -> Packed:
        """`target`, of which these names are fetched."""
        ...

    def pack_written(self, imported: Any, written: Any, fetched: Sequence[str]) -> Packed:
        """What was written of the program that was `imported`, before anything is applied."""
        ...

    def unpack(self, packed: Packed) -> Tuple[Any, List[Any]]:
        """The program, whose order holds as it would have, and what to fetch."""
        ...

    def packs(self, target: Any) -> bool:
        """Whether `target`, and what is written of it, can be packed: what cannot runs in this process alone."""
        ...

    def copied(self, target: Any, fetched: Sequence[str]) -> Tuple[Any, List[Any]]:
        """A copy of `target`, which may be run in this process, and what to fetch of it for these names."""
        ...

    def copied_written(self, imported: Any, written: Any,
                       fetched: Sequence[str]) -> Tuple[Any, List[Any]]:
        """The same of what was written, before anything is applied."""
        ...

    def named(self, target: Any, argument: str, given: Any) -> Any:
        """`given`, which the caller passed as `argument`, with names in place of values of `target`."""
        ...

    def keep(self, target: Any, keeper: Any) -> bool:
        """Whether `keeper.before_run()` is called ahead of each run of `target` from now on."""
        ...


class SavedPrograms(Protocol):
    """Programs in files, of the Paddle that is installed; what is wanted of them and made of them is `serving.wanted`'s."""

    def read(self, given: str) -> Any:
        """The program that a user names: it has `path`, `files`, and says whether it is `for_inference`."""
        ...

    def optimize(self, saved: Any, request: Any, options: Any, serving: Any) -> Any:
        """What becomes of it, and the report."""
        ...

    def write(self, out: str, saved: Any, done: Any, force: bool,
              others: Mapping[str, bytes]) -> Sequence[Path]:
        """Writes it and `others`, by path: all or none. Gives the paths."""
        ...

    def compare(self, source: str, target: str, feed: Optional[str], fetch: Sequence[str],
                batch_size: int, every_setting: bool, advance: Callable[[float], None],
                requests: int) -> Sequence[Any]:
        """Rows of what running both has shown."""
        ...

    def settings(self, saved: Any) -> Any:
        """What a process that serves it should set."""
        ...


class Watching(Protocol):
    """What is done to the programs of one function, until it is stopped: they are Paddle's own again then."""

    def stop(self) -> None:
        ...


class Planner(Protocol):
    """Plans the programs of one function, and is told when they run: what others keep counts for those that come later in a step."""

    def began(self) -> None:
        """The function is called."""
        ...

    def plan(self, backend: Backend, target: Any, traced: Traced, made: MadeOf) -> Replanned:
        """Plans a program in place; says what that has changed."""
        ...

    def ran(self, program: Hashable) -> None:
        """That which was planned under this name starts to run, with a backward part to come."""
        ...
