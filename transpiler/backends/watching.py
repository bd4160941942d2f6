"""Watches over the programs that `paddle.jit.to_static` makes of one function, whichever Paddle it is.

Where Paddle reads bytecode (SOT), it makes functions of its own for the stretches that it can trace; the build strategy that they are
given says for which function they are.
"""

from __future__ import annotations

import weakref
from typing import Any, Callable, FrozenSet, Hashable, Iterable, List, Optional, Protocol, Tuple

from paddle.jit.dy2static.program_translator import SymbolicStaticFunction
from paddle.jit.sot.symbolic.compile_cache import CompileSIRCache
from paddle.static import BuildStrategy

from transpiler.backends.base import Backend, MadeOf, Planner, Replanned, Traced
from transpiler.backends.failed_traces import forgotten_if_failed
from transpiler.backends.static_functions import layer_of, saved_buffers

_STRATEGY = 'build_strategy'


class Hook(Protocol):
    """Between the making of a program and its split."""

    def remove(self) -> None:
        """The programs are Paddle's own again, and those that were planned are made again."""
        ...


class FunctionWatch:
    """What is done to the programs of one static function, until it is stopped.

    Args:
        function: the static function.
        plan: its planner.
        hook: hooks into a partial program: what it has is made again, and what it makes is planned.
        module: the one of Paddle in which partial programs are made.
    """

    def __init__(self, function: Any, plan: Planner, hook: Callable[[Any, 'Planned'], Hook],
                 module: Any) -> None:
        self._function, self._plan, self._hook, self._module = function, plan, hook, module
        self._hooks: List[Hook] = []
        self._undo: List[Callable[[], Any]] = []
        self._watch_calls(plan.began)
        if isinstance(function, SymbolicStaticFunction):
            self._watch_stretches()
        else:
            self._watch_cache(function._program_cache)

    def adopt(self, partial: Any) -> None:
        self._hooks.append(self._hook(partial, Planned(self._function, self._plan)))

    def stop(self) -> None:
        for undo in self._undo:
            undo()
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def _watch_calls(self, began: Callable[[], None]) -> None:
        call = self._function._perform_call

        def perform_call(*args: Any, **kwargs: Any) -> Any:
            began()
            with forgotten_if_failed():
                return call(*args, **kwargs)

        self._function._perform_call = perform_call
        self._undo.append(lambda: self._function.__dict__.pop('_perform_call', None))

    def _watch_cache(self, cache: Any) -> None:
        build = cache._build_once

        def build_once(key: Any) -> Tuple[Any, Any]:
            concrete, partial = build(key)
            self.adopt(partial)
            return concrete, partial

        cache._build_once = build_once
        self._undo.append(lambda: cache.__dict__.pop('_build_once', None))
        for _, partial in cache._caches.values():
            self.adopt(partial)

    def _watch_stretches(self) -> None:
        given = self._function._kwargs[_STRATEGY]
        own = _Marked(given, self)
        _mark(self._function, own)
        self._undo += [own.forget, lambda: _mark(self._function, given)]
        _tell_watches(self._module)
        for made in CompileSIRCache().cache.values():
            if self._is_ours(made, given):
                _mark(made.compiled_fn, own)
                if made.partial_program is not None:
                    self.adopt(made.partial_program)

    def _is_ours(self, made: Any, given: BuildStrategy) -> bool:
        """Whether Paddle made it for this function, ahead of us: others of one class have one strategy."""
        layer = layer_of(self._function)
        if made.compiled_fn._kwargs[_STRATEGY] is not given:
            return False
        if layer is None or made.partial_program is None:
            return layer is None
        own = {id(p) for p in (*layer.parameters(), *layer.buffers())}
        return all(id(p) in own for p in made.partial_program._params)


class Planned:
    """What hooks have of a function and its planner: as long as those are there, for Paddle keeps the programs of stretches for
    longer."""

    def __init__(self, function: Any, plan: Planner) -> None:
        self._function: Callable[[], Any] = weakref.ref(function)
        self._plan: Callable[[], Optional[Planner]] = weakref.ref(plan)

    def plan(self, backend: Backend, target: Any, traced: Traced, made: MadeOf) -> Replanned:
        """Plans a program in place; says what that has changed."""
        plan = self._plan()
        return Replanned() if plan is None else plan.plan(backend, target, traced, made)

    def ran(self, program: Hashable) -> None:
        """That which was planned under this name starts to run, with a backward part to come."""
        plan = self._plan()
        if plan is not None:
            plan.ran(program)

    def written_elsewhere(self, read: Iterable[Any]) -> FrozenSet[str]:
        """See the function of that name."""
        return written_elsewhere(self._function(), read)


def written_elsewhere(function: Any, read: Iterable[Any]) -> FrozenSet[str]:
    """Names of those that a program of `function` reads, inputs and parameters, which others may write before its backward part
    runs. Of a stretch, whatever looks like a saved buffer: another stretch may change that, and this one knows it by a name of its
    own. Of one of a function that is no method, all without gradients: whose buffers they are nobody knows."""
    if not isinstance(function, SymbolicStaticFunction):
        return frozenset()
    layer, given = layer_of(function), [v for v in read if v.stop_gradient]
    if layer is not None:
        alike = {(tuple(b.shape), b.dtype) for b in saved_buffers(layer)}
        given = [v for v in given if (tuple(v.shape), v.dtype) in alike]
    return frozenset(v.name for v in given)


def traced(mode: str, inputs: Iterable[Any]) -> Traced:
    """`inputs` are the variables that a program is made for."""
    return Traced(mode, ', '.join(f'{v.dtype.name.lower()}{list(v.shape)}' for v in inputs))


def made_of(partial: Any) -> MadeOf:
    """A partial program is one of a step, whatever it is run for."""
    return MadeOf(id(partial), frozenset(p.name for p in partial._params))


def forget_programs(partial: Any, made: Iterable[str]) -> None:
    """Drops programs that a partial program has, by the names of their attributes; they are made again when they are asked for.
    With one for training, Paddle says then of what kind gradients are, by which it drops those that there are: once is enough."""
    had = [name for name in made if name in partial.__dict__]
    if any('train' in name for name in had):
        partial._set_grad_type = lambda params, program: None
    for name in had:
        del partial.__dict__[name]


class _Marked(BuildStrategy):
    """A build strategy like another one, for programs that somebody watches. Paddle keeps it for longer than the layer is there, which
    the watch holds: the function holds the watch."""

    def __init__(self, like: BuildStrategy, watch: FunctionWatch) -> None:
        super().__init__()
        for name, kind in vars(BuildStrategy).items():
            if isinstance(kind, property) and getattr(self, name) != getattr(like, name):
                setattr(self, name, getattr(like, name))
        self._watch: Callable[[], Optional[FunctionWatch]] = weakref.ref(watch)

    @property
    def watch(self) -> Optional[FunctionWatch]:
        return self._watch()

    def forget(self) -> None:
        self._watch = lambda: None


def _mark(function: Any, strategy: BuildStrategy) -> None:
    function._kwargs = {**function._kwargs, _STRATEGY: strategy}


def _tell_watches(module: Any) -> None:
    """From now on, who watches a program is told of it; all others are made as ever."""
    make = module.partial_program_from
    if getattr(make, 'tells_watches', False):
        return

    def partial_program_from(concrete: Any, from_method: bool = False) -> Any:
        made = make(concrete, from_method)
        strategy = concrete.kwargs.get(_STRATEGY)
        if isinstance(strategy, _Marked) and strategy.watch is not None:
            strategy.watch.adopt(made)
        return made

    partial_program_from.tells_watches = True
    module.partial_program_from = partial_program_from
