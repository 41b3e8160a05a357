"""topogate simulate FILE: where would these pods be placed?

The cluster is that of the kubeconfig, whose admission is asked by dry run, or with --cluster what `kubectl
get nodes,pods -A -o json` (or yaml) has printed. The manifest is what would be applied. Its pods form gangs,
which are placed one after the other. The answer is the sweeper's: CPU-only pods are placed near the GPU pods
of their gang, and pod sets with levels of their own use these. No pod is evicted for it.
"""

import argparse
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from webhook.cli import session
from webhook.cli.terminal import columns, complain, is_coloured, print_line
from webhook.configuration.document import ConfigurationError
from webhook.configuration.file import Configuration
from webhook.configuration.settings import Settings
from webhook.inquiry.documents import InputError
from webhook.inquiry.gang_answer import GangAnswer, with_levels
from webhook.inquiry.move_answer import what_moves_would_do
from webhook.inquiry.preferences import describe_preferred
from webhook.inquiry.simulation import (
    NotPlacedError,
    PlacedGang,
    Rehearsed,
    place_each,
    read,
    read_manifest,
)
from webhook.placement import Assignment, Budget, Mode, NoFit, Options, PlacementError, Snapshot
from webhook.placement.model import Placed
from webhook.placement.names import natural
from webhook.sweeper.decide.attempt import GangPlaced, question_key_of
from webhook.sweeper.decide.core_questions import QUESTIONS
from webhook.sweeper.decide.placement_pass import answer_for
from webhook.sweeper.observe.gangs import GangKey
from webhook.sweeper.observe.pods import name_of
from webhook.text import counted, few

_MOVES: Final = "--make-room"


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the subcommand `simulate`."""
    parser = subparsers.add_parser(
        "simulate",
        help="show where a manifest's pods would be placed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--cluster", action="append", default=[], type=Path, metavar="FILE",
        help="nodes and pods as YAML or JSON instead of a cluster; may be repeated, - reads standard input",
    )  # fmt: skip
    parser.add_argument("manifest", type=Path, help="a workload, or pods, as YAML or JSON, - for stdin")
    parser.add_argument(
        "--required", metavar="LEVEL", help="overrides the required level: block, subblock ..."
    )
    parser.add_argument(
        "--preferred", metavar="LEVEL", help="overrides the preferred levels: block,subblock ..."
    )
    parser.add_argument(
        "--mode", choices=[*map(str, Mode)], metavar="MODE",
        help=f"how gangs are laid out: {', '.join(Mode)}; default: as the configuration says",
    )  # fmt: skip
    session.add_configuration(parser)
    parser.add_argument(
        _MOVES, action="store_true",
        help="for a gang that does not fit, print which gangs of the cluster would be moved for it",
    )  # fmt: skip
    parser.add_argument("--show-patch", action="store_true", help="print what admission would change")
    parser.add_argument("--map", action="store_true", help="draw the placement, like topogate map")
    session.add_connection(parser)
    session.add_output(parser, (*session.DOCUMENTS, "text"))


def run(args: argparse.Namespace) -> int:
    """Print the assignments (status 0) or the reason why there is none (1); 2 for unusable input."""
    return session.guarded(args, lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    if fault := _fault_of(args):
        complain(f"topogate simulate: {fault}")
        return 2
    try:
        scene, placed = _ask(args)
    except NotPlacedError as error:
        print_line(str(error))
        return 1
    except (InputError, PlacementError, ConfigurationError) as error:
        complain(f"topogate simulate: {error}")
        return 2
    _check(placed)
    if args.show_patch:
        _print_patches(scene)
    _show(placed, scene, args)
    for note in scene.notes:
        complain(f"topogate simulate: note: {note}")
    return (
        0 if all(any(each.answer.placed for each in replicas) for replicas in _by_controller(placed)) else 1
    )


def _fault_of(args: argparse.Namespace) -> str:
    """Which options contradict one another, "" if none."""
    if args.output in session.DOCUMENTS and (args.map or args.make_room):
        return f"{'--map' if args.map else _MOVES} prints text; omit it or -o {args.output}"
    if args.make_room and args.cluster:
        return f"{_MOVES} needs the Placements of a cluster, which --cluster does not read; omit one"
    return ""


def _check(placed: Sequence[PlacedGang]) -> None:
    """Raises AssertionError for an answer that breaks a rule."""
    for each in placed:
        if problems := each.answer.faults(each.state.snapshot):
            raise AssertionError(f"the assignment breaks rules: {problems}")


def _ask(args: argparse.Namespace) -> tuple[Rehearsed, list[PlacedGang]]:
    """What was read, and the answers.

    Raises InputError, NotPlacedError, PlacementError, session.MistakeError, and where a cluster is asked
    ApiError.
    """
    given = session.given_configuration(args)
    if args.cluster:
        namespace = "" if args.namespace is None else session.namespace_of(args)
        scene = read(args.cluster, args.manifest, given, namespace)
    else:
        scene = _of_cluster(args, given)
    gangs = [with_levels(gang, args.required, args.preferred) for gang in scene.gangs]
    scene = replace(scene, gangs=gangs, settings=_settings(args, scene.settings))
    return scene, list(place_each(scene))


def _settings(args: argparse.Namespace, settings: Settings) -> Settings:
    """The sweeper's settings, with the mode that is asked for."""
    mode = Mode(args.mode) if args.mode else settings.options.mode
    return replace(settings, options=replace(settings.options, mode=mode))


def _of_cluster(args: argparse.Namespace, given: Configuration | None) -> Rehearsed:
    """The manifest and the kubeconfig's cluster, whose admission is asked by dry run."""
    from webhook.inquiry.cluster_state import ClusterReading
    from webhook.inquiry.dry_run import DryRun
    from webhook.inquiry.lint_cluster import read_rules
    from webhook.inquiry.rehearsal import rehearse_manifest

    api = session.connect(args)
    dry_run = DryRun(api)
    configuration = given or session.known_configuration(args, api)
    rules = read_rules(api, configuration.policy if configuration else None, dry_run)
    found = read_manifest(args.manifest, rules, session.namespace_of(args))
    found.notes += dry_run.notes
    return rehearse_manifest(ClusterReading.read(api), found, (configuration or Configuration()).settings)


def _by_controller(placed: Sequence[PlacedGang]) -> list[list[PlacedGang]]:
    """Print each gang by itself, but together the pods of one controller that do not wait for one another."""
    found: dict[GangKey, list[PlacedGang]] = {}
    for each in placed:
        found.setdefault(each.gang.controller, []).append(each)
    return list(found.values())


def _show(placed: Sequence[PlacedGang], scene: Rehearsed, args: argparse.Namespace) -> None:
    """Print the answers in the chosen format."""
    if args.output in session.DOCUMENTS:
        found = [_document(each.answer) for each in placed]
        named = [{"gang": each.gang.key.name, **own} for each, own in zip(placed, found, strict=True)]
        session.show(found[0] if len(found) == 1 else {"gangs": named}, args.output)
        return
    victims = VictimNotes(scene.settings.options)
    if args.make_room:
        _print_moves(placed)
    for replicas in _by_controller(placed):
        if len(replicas) == 1:
            _print(replicas[0], victims)
        else:
            _print_replicas(replicas, victims)
    for line in _map(scene.snapshot, placed[-1].after) if args.map else ():
        print(line)


def _print_moves(placed: Sequence[PlacedGang]) -> None:
    """Print what moving gangs would do for those without a place. Limits in time are not checked."""
    for each in placed:
        if isinstance(each.answer.found, NoFit):
            attempt = each.answer.attempt
            found = list(what_moves_would_do(attempt, each.state)) if attempt is not None else []
            for line in found or ["No move of other gangs would help it."]:
                print_line(f"Gang {each.gang.key.name}: {line}")


def _document(answer: GangAnswer) -> dict[str, Any]:
    found = answer.found
    if isinstance(found, Assignment):
        found = replace(found, placed=answer.placed)
    return dict(msgspec.to_builtins(found))


def _print_patches(scene: Rehearsed) -> None:
    """Print on standard error what admission would change of each template, as JSON Patch."""
    for name, admitted in scene.admitted.items():
        complain(f"Patch of pod {name}: {msgspec.json.encode(admitted.operations).decode()}")


def _print(placed: PlacedGang, victims: "VictimNotes") -> None:
    gang, answer = placed.gang, placed.answer
    if isinstance(answer.found, NoFit):
        print_line(answer.sentence)
        if note := victims.note(placed):
            print_line(note)
        return
    ranks = {pod.metadata.name: gang.ranks.get(pod.metadata.uid) for pod in gang.gated}
    print_line(f"Gang {gang.key.name}: {answer.sentence}")
    if preferred := describe_preferred(answer.asked.gang, answer.found.nodes.values(), placed.state.snapshot):
        print_line(preferred)
    _print_rows(
        sorted(
            answer.placed, key=lambda p: (ranks[p.member] is None, ranks[p.member] or 0, natural(p.member))
        )
    )


_STEPS_A_POD: Final = 20
"""Of the work budget: to look at a pod takes about as many microseconds."""


class VictimNotes:
    """Which pods the sweeper's steps would evict for gangs without a place, each distinct request asked once.

    One work budget is for all of them.
    """

    def __init__(self, options: Options) -> None:
        self._budget = Budget(QUESTIONS * options.bound)
        self._known: dict[Hashable, str] = {}

    def note(self, placed: PlacedGang, whom: str = "it") -> str:
        """The sentence on the victims of a gang, "" if it would preempt none. whom: how to call the gang."""
        key = whom, id(placed.state.snapshot), question_key_of(placed.gang, placed.answer.asked)
        if key not in self._known:
            self._known[key] = self._found(placed, whom)
        return self._known[key]

    def _found(self, placed: PlacedGang, whom: str) -> str:
        state = placed.state
        settings = replace(state.settings, moves=replace(state.settings.moves, is_on=False))
        state = replace(state, given=replace(state.given, settings=settings))
        self._budget.take(_STEPS_A_POD * len(state.view.by_uid))
        outcome = None if self._budget.exhausted else answer_for(placed.gang, state, self._budget)
        if isinstance(outcome, GangPlaced):
            by_uid = state.view.by_uid
            pods = [name_of(by_uid[uid]) for group in outcome.plan.victims for uid in group.pods]
            shown = few(sorted(pods, key=natural), unit="pod")
            return (
                f"{whom.capitalize()} would fit in the place of {counted(len(pods), 'pod')} of lower "
                f"priority, which it may preempt: {shown}. Preemption is not simulated."
            )
        if self._budget.exhausted:
            return f"Which pods {whom} may preempt is not known: the search ended at its work budget."
        return ""


def _print_replicas(placed: Sequence[PlacedGang], victims: VictimNotes) -> None:
    """Print pods of one controller that do not wait for one another."""
    name = placed[0].gang.controller.name
    rows = sorted((row for each in placed for row in each.answer.placed), key=lambda p: natural(p.member))
    if rows:
        nodes = len({row.node for row in rows})
        where = counted(nodes, "node")
        print_line(f"Replicas of {name}, each by itself: {counted(len(rows), 'pod')} on {where}")
        _print_rows(rows)
    without = [each for each in placed if isinstance(each.answer.found, NoFit)]
    if without:
        sentence = without[0].answer.sentence
        print_line(f"{len(without)} of {len(placed)} replicas of {name} have no place. {sentence}")
        if note := victims.note(without[0], "the first of them"):
            print_line(note)


def _print_rows(rows: Sequence[Placed]) -> None:
    width = max(len(placed.member) for placed in rows)
    for placed in rows:
        cards = "|".join(
            ",".join(share.card + "".join(f":gt{tile}" for tile in share.tiles) for share in slot)
            for slot in placed.cards
        )
        print_line(f"  {placed.member:<{width}}  {placed.node}{'  ' + cards if cards.strip('|') else ''}")


def _map(snapshot: Snapshot, after: Snapshot) -> Iterator[str]:
    """The tree with the gangs as planned: all top domains, and of the others those that they use."""
    # Loaded only for this option.
    from webhook.cli import map as tree
    from webhook.scheduling.gpu_counts import count_used
    from webhook.ui.picture import WAITED_FOR, lineage, node_tile, sum_domains

    counted = Configuration().counting
    tiles = []
    for name, state in snapshot.nodes.items():
        tile = node_tile(state, counted)
        taken = count_used(after.nodes[name], counted) - tile.used if after.nodes[name] is not state else 0
        if tile.gpus:
            tiles.append(
                msgspec.structs.replace(tile, waiting=taken, state=WAITED_FOR if taken else tile.state)
            )
    used = {above for tile in tiles if tile.waiting for above in lineage(tile.domain)}
    lowest = max(0, len(snapshot.topology.level_names) - 2)
    shown = [
        each for each in sum_domains(tiles) if each.level == 0 or (each.level <= lowest and each.id in used)
    ]
    return tree.lines(shown, is_coloured=is_coloured(), most=columns())
