"""Which back end takes a program, by the Paddle that is installed: the one place that knows of both.

Nothing of the front end of another Paddle is imported.
"""

from __future__ import annotations

import importlib
import weakref
from typing import Any, Callable, Dict, Mapping, Tuple

from transpiler.backends.base import LiveBackend, Planner, SavedPrograms, StepBytes, Watching
from transpiler.errors import InvalidProgramError, UnsupportedPaddleError

_BACK_ENDS = {
    '2': 'transpiler.backends.paddle2.programs',
    '3': 'transpiler.backends.paddle3.programs'
}
# By the one for all programs: that for those of which fleet's pipeline has made sections.
_OF_PIPELINES = {'transpiler.backends.paddle2.programs': 'transpiler.backends.paddle2.sections'}
_LAYERS = {'2': 'transpiler.backends.paddle2.layers', '3': 'transpiler.backends.paddle3.layers'}
_SAVED = {'2': 'transpiler.serving.programs', '3': 'transpiler.serving.pir.programs'}
# By name of a parameter, the layers that it is in; and those that a whole function is in. Paths, the outermost first.
LayersAround = Tuple[Dict[str, Tuple[str, ...]], Tuple[str, ...]]
_INSTALL = "install paddlepaddle==2.6.2, or one of 3.0 to 3.3: pip install -e '.[cpu]' or '.[cpu3]'"


def paddle_version() -> str:
    """The version that is installed; raises UnsupportedPaddleError if none is."""
    try:
        return str(importlib.import_module('paddle').__version__)
    except ModuleNotFoundError as error:
        if error.name != 'paddle':
            raise
        raise UnsupportedPaddleError(f'Paddle is not installed: {_INSTALL}') from None


def live_programs(program: Any) -> LiveBackend:
    """The back end for `program`, which a user has in hand.

    Raises:
        UnsupportedPaddleError: the installed Paddle is missing, or is one that nobody knows.
        InvalidProgramError: it is a program of another kind than this Paddle runs by default.
    """
    name = _one_of(_BACK_ENDS, f'; its runtime is not modelled: {_INSTALL}')
    _check_kind(program, paddle_version())
    if name in _OF_PIPELINES and getattr(program, '_pipeline_opt', None):
        sections: LiveBackend = importlib.import_module(_OF_PIPELINES[name]).SectionPrograms()
        return sections
    found: LiveBackend = importlib.import_module(name).LivePrograms()
    return found


def _one_of(modules: Mapping[str, str], otherwise: str) -> str:
    """The one for the Paddle that is installed, by its first number; raises UnsupportedPaddleError, which says `otherwise`, if none is."""
    version = paddle_version()
    major = version.split('.')[0]
    if major not in modules:
        raise UnsupportedPaddleError(f'paddlepaddle {version} is installed{otherwise}')
    return modules[major]


def is_layer(target: Any) -> bool:
    """Whether `target` is a layer, or a function that `paddle.jit.to_static` has made."""
    functions = any(each.__name__ == 'StaticFunction' for each in type(target).__mro__)
    return functions or hasattr(target, 'named_sublayers')


def functions_of(target: Any) -> Dict[str, Any]:
    """The static functions of `target`; see `backends.static_functions`."""
    paddle_version()
    module = importlib.import_module('transpiler.backends.static_functions')
    found: Dict[str, Any] = module.static_functions(target)
    return found


def layers_of(target: Any, function: Any) -> Callable[[], LayersAround]:
    """Says at any time where parameters are: in `target`, or in the layer whose method `function` is where `target` is no layer.
    It holds no layer alive; of one that is gone nothing is known.
    """
    module = importlib.import_module('transpiler.backends.static_functions')
    own = module.layer_of(function)
    root = target if hasattr(target, 'named_sublayers') else own
    held = [None if each is None else weakref.ref(each) for each in (root, own)]

    def found() -> LayersAround:
        layer, inner = (each and each() for each in held)
        if layer is None:
            return {}, ('',)
        return module.holders(layer), module.chain_of(layer, inner)

    return found


def step_bytes(target: Any, function: Any, optimizer: Any) -> StepBytes:
    """What a step that trains `target` with `optimizer` holds besides the programs of `function`; see `backends.optimizers`."""
    layer = target if hasattr(target, 'named_sublayers') else importlib.import_module(
        'transpiler.backends.static_functions').layer_of(function)
    found: StepBytes = importlib.import_module('transpiler.backends.optimizers').step_bytes(
        layer, optimizer)
    return found


def watch(function: Any, plan: Planner) -> Watching:
    """From now on, the programs that Paddle makes of `function` are planned; those that it has made are made again.

    Raises:
        UnsupportedPaddleError: the installed Paddle is one whose layers nobody knows.
    """
    otherwise = f'; layers are planned with paddlepaddle {", ".join(_LAYERS)}'
    found: Watching = importlib.import_module(_one_of(_LAYERS, otherwise)).Watch(function, plan)
    return found


def collects_garbage() -> bool:
    """Whether the executor frees variables after their last use, by the flags in force."""
    found: bool = importlib.import_module('transpiler.backends.settings').collects_garbage()
    return found


def workers() -> Any:
    """A round of the workers of this job; see `backends.workers`."""
    paddle_version()
    return importlib.import_module('transpiler.backends.workers').workers()


def saved_programs() -> SavedPrograms:
    """What takes saved programs.

    Raises:
        UnsupportedPaddleError: the installed Paddle is missing, or is one that nobody knows.
    """
    otherwise = f', whose saved programs nobody knows: {_INSTALL}'
    found: SavedPrograms = importlib.import_module(_one_of(_SAVED, otherwise)).Saved()
    return found


def _check_kind(program: Any, version: str) -> None:
    module, kind = type(program).__module__, type(program).__name__
    is_pir = kind == 'Program' and module.endswith('.pir')
    is_desc = kind in ('Program', 'CompiledProgram') and not is_pir
    if is_pir and version.startswith('2.'):
        raise InvalidProgramError(
            f'this is a PIR program, which paddlepaddle {version} only tries out: '
            'build it without FLAGS_enable_pir_api, or install paddlepaddle 3')
    if is_desc and not version.startswith('2.'):
        raise InvalidProgramError(
            f'this is a program of Paddle 2 (ProgramDesc), and paddlepaddle {version} is installed: '
            'build it without OldIrGuard and with FLAGS_enable_pir_api on, the default, or install '
            'paddlepaddle 2.6.2')
