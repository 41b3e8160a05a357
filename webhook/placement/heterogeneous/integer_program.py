"""A lexicographic integer program on HiGHS: each objective in turn, fixed at its optimum for the next ones.

Work is bounded by counts: the nodes of the search, and the number of times that HiGHS checks its limits,
weighted by the size of the matrix. There is no clock, one thread and a fixed seed, so the answers are the
same on every machine. HiGHS runs without Python's global interpreter lock. Its claims are checked: values are
computed from the solution, and no start solution is passed (with `setSolution` it once returned a hint as its
answer).

Source: Huangfu and Hall, Parallelizing the dual revised simplex method (2018), https://highs.dev.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast

import highspy
import numpy as np
from numpy.typing import NDArray

from webhook.placement.budget import Budget

NODES: Final = 200
"""The most nodes of the search for one objective."""

LOOK: Final = 1
"""Steps per matrix entry each time that HiGHS checks its limits."""

ITERATIONS: Final = 40
"""Rows times iterations of the simplex method in one step."""

PROGRAM: Final = 3000
"""Steps of any program, even of the smallest, for each objective."""

LOOKS: Final = 24
"""The fewest checks for one objective with a small matrix, even if fewer steps are left."""

SPARE: Final = 60_000
"""The fewest matrix entries times checks for one objective, even if fewer steps are left."""

SOLVE: Final = 8
"""Steps per matrix entry to pass it to HiGHS and solve it without a search."""

RULES_OFF: Final = 1 << 15 | 1 << 16
"""Rules of HiGHS's presolve that are not used, as bits: probing and the enumeration of rows.

Both take seconds for a thousand columns of 0 or 1, without a check of the limits.
"""

Row = Mapping[int, float]
"""Coefficients by column number."""

INFINITE: Final = float("inf")


@dataclass(slots=True)
class IntegerProgram:
    """upper: upper bounds of columns, whose lower bounds are 0. rows: both bounds, and coefficients."""

    upper: list[float] = field(default_factory=list)
    rows: list[tuple[float, float, Row]] = field(default_factory=list)

    def column(self, most: float) -> int:
        """Add a column; returns its number."""
        self.upper.append(most)
        return len(self.upper) - 1

    def row(self, least: float, most: float, factors: Row) -> None:
        """Add a row."""
        self.rows.append((least, most, factors))

    @property
    def entries(self) -> int:
        """The number of coefficients."""
        return sum(len(factors) for _, _, factors in self.rows)

    def model(self, *, is_integer: bool = True) -> Any:
        """The model for HiGHS, without an objective."""
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self.upper), len(self.rows)
        lp.col_cost_ = np.zeros(len(self.upper))
        lp.col_lower_ = np.zeros(len(self.upper))
        lp.col_upper_ = np.array(self.upper, dtype=float)
        lp.row_lower_ = np.array([least for least, _, _ in self.rows], dtype=float)
        lp.row_upper_ = np.array([most for _, most, _ in self.rows], dtype=float)
        matrix = lp.a_matrix_
        matrix.format_ = highspy.MatrixFormat.kRowwise
        matrix.start_ = np.cumsum([0, *(len(factors) for _, _, factors in self.rows)])
        matrix.index_ = np.array(
            [column for _, _, factors in self.rows for column in factors], dtype=np.int32
        )
        values = [value for _, _, factors in self.rows for value in factors.values()]
        matrix.value_ = np.array(values, dtype=float)
        if is_integer:
            lp.integrality_ = [highspy.HighsVarType.kInteger] * len(self.upper)
        return lp


class Minimum(NamedTuple):
    """values: of the columns, None if none were found. exact: none are better."""

    values: NDArray[Any] | None
    exact: bool


class LexicographicSearch:
    """Solves one program for one objective after another."""

    def __init__(self, program: IntegerProgram, budget: Budget) -> None:
        self._columns = np.arange(len(program.upper), dtype=np.int32)
        self._budget = budget
        self._entries = max(1, program.entries)
        self._looks = 0
        self._last = 0
        """The steps of the last objective."""
        self._most_looks = min(LOOKS, SPARE // self._entries)
        self._highs = _solver()
        for option, value in (("mip_rel_gap", 0.0), ("mip_abs_gap", 0.99), ("mip_max_nodes", NODES)):
            self._highs.setOptionValue(option, value)
        self._highs.passModel(program.model())
        self._highs.cbMipInterrupt.subscribe(self._look)

    def _look(self, event: Any) -> None:
        self._looks += 1
        self._budget.take(self._entries * LOOK)
        if self._looks > self._most_looks and self._budget.left < 0:
            event.interrupt()

    @property
    def is_over(self) -> bool:
        """Whether fewer steps are left than the last objective took, and the matrix is large."""
        return self._budget.left < self._last and self._most_looks < LOOKS

    def at_most(self, costs: Sequence[float], most: float) -> None:
        """Add an upper bound of these costs for all further objectives."""
        factors = np.array(costs, dtype=float)
        used = np.flatnonzero(factors)
        self._highs.addRow(-INFINITE, most, len(used), used.astype(np.int32), factors[used])

    def minimise(self, costs: Sequence[float]) -> Minimum:
        """Minimize these costs."""
        factors = np.array(costs, dtype=float)
        self._looks = 0
        before = self._budget.spent
        self._budget.take(PROGRAM + self._entries * SOLVE)
        self._highs.changeColsCost(len(factors), self._columns, factors)
        self._highs.run()
        status, info = self._highs.getModelStatus(), self._highs.getInfo()
        self._budget.take(self._highs.getNumRow() * max(0, info.simplex_iteration_count) // ITERATIONS)
        self._last = self._budget.spent - before
        if status == highspy.HighsModelStatus.kInfeasible:
            return Minimum(None, True)
        is_best = status == highspy.HighsModelStatus.kOptimal
        if info.primal_solution_status != int(highspy.kSolutionStatusFeasible):
            return Minimum(None, False)
        values = np.round(np.array(self._highs.getSolution().col_value))
        if abs(float(factors @ values) - info.objective_function_value) > 0.5:
            return Minimum(None, False)
        return Minimum(values, is_best)


def prices(program: IntegerProgram, costs: Sequence[float], rows: int) -> tuple[float, list[float]] | None:
    """The optimum of the linear relaxation, and the dual values of its first rows.

    None if it is infeasible or unbounded.
    """
    solver = _solver()
    lp = program.model(is_integer=False)
    lp.col_cost_ = np.array(costs, dtype=float)
    solver.passModel(lp)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    duals = list(solver.getSolution().row_dual[:rows])
    return float(solver.getInfo().objective_function_value), duals


def _solver() -> Any:
    solver = cast(Any, highspy).Highs()
    solver.silent()
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("random_seed", 1)
    solver.setOptionValue("presolve_rule_off", RULES_OFF)
    return solver
