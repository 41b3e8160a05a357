"""The places where code can be made wrong, and the code with one of them wrong."""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_COMPARED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_COMPUTED: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult,
    ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
}  # fmt: skip
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Mutant:
    """One wrong place: a node of a module, and the node in its place.

    line: of the change; function: the line of the outermost function around it.
    """

    path: str
    function: int
    line: int
    change: str
    tree: ast.Module
    node: ast.AST
    replaced: ast.AST

    @property
    def source(self) -> str:
        """The whole module with the change."""
        return _with(self.tree, self.node, self.replaced)


def mutants_of(path: Path, root: Path) -> Iterator[Mutant]:
    """All mutants of the functions of a module, in the order of its lines."""
    tree = ast.parse(path.read_text())
    for function in _outermost(tree):
        left_out = _annotations(function) | _log_calls(function)
        for node in ast.walk(function):
            if id(node) in left_out:
                continue
            for change, replaced in _changes(node):
                yield Mutant(
                    str(path.relative_to(root)),
                    min((each.lineno for each in function.decorator_list), default=function.lineno),
                    getattr(node, "lineno", function.lineno),
                    f"{change}: {ast.unparse(node)[:120]}",
                    tree,
                    node,
                    replaced,
                )


def _outermost(tree: ast.AST) -> Iterator[_Function]:
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, _Function):
            yield child
        else:
            yield from _outermost(child)


def _annotations(function: _Function) -> set[int]:
    """The ids of the nodes that only say of which type something is."""
    roots = [
        each
        for node in ast.walk(function)
        for each in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if each is not None
    ]
    return {id(node) for root in roots for node in ast.walk(root)}


def _log_calls(function: _Function) -> set[int]:
    """The ids of the nodes of calls that only log: as in other tools, a log line is not mutated."""
    calls = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
        and isinstance(node.value.func.value, ast.Name)
        and node.value.func.value.id in ("log", "logger")
    ]
    return {id(node) for call in calls for node in ast.walk(call)}


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Each way to make one node wrong: what it is called, and the node in its place."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARED:
        changed = copy.copy(node)
        changed.ops = [_COMPARED[type(node.ops[0])](), *node.ops[1:]]
        yield "other comparison", changed
    elif isinstance(node, ast.BoolOp):
        yield "and <-> or", ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        yield (
            "condition dropped",
            ast.BoolOp(node.op, node.values[:-1]) if len(node.values) > 2 else node.values[0],
        )
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "not dropped", node.operand
    elif isinstance(node, ast.BinOp) and type(node.op) in _COMPUTED:
        yield "other operator", ast.BinOp(node.left, _COMPUTED[type(node.op)](), node.right)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int):
        yield (
            "other constant",
            ast.Constant(not node.value if isinstance(node.value, bool) else node.value + 1),
        )
    elif isinstance(node, ast.Dict) and node.keys:
        yield "entry dropped", ast.Dict(node.keys[:-1], node.values[:-1])
    elif isinstance(node, ast.Call):
        yield from _changed_calls(node)
    elif isinstance(node, ast.If | ast.IfExp) and isinstance(node.test, ast.Name | ast.Call | ast.Attribute):
        changed_test = copy.copy(node)
        changed_test.test = ast.UnaryOp(ast.Not(), node.test)
        yield "condition negated", changed_test
    elif isinstance(node, ast.Raise) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield "statement dropped", ast.Pass()


def _changed_calls(node: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
        other = "max" if node.func.id == "min" else "min"
        yield "min <-> max", ast.Call(ast.Name(other, ast.Load()), node.args, node.keywords)
    elif len(node.args) == 2 and not any(isinstance(each, ast.Starred) for each in node.args):
        yield "arguments swapped", ast.Call(node.func, node.args[::-1], node.keywords)


class _Replacing(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self._new if node is self._old else super().visit(node)


def _with(tree: ast.Module, old: ast.AST, new: ast.AST) -> str:
    """The source of a module with one node replaced; the module stays as it is."""
    memo: dict[int, ast.AST] = {}
    twin = copy.deepcopy(tree, memo)
    return ast.unparse(ast.fix_missing_locations(_Replacing(memo[id(old)], new).visit(twin)))
