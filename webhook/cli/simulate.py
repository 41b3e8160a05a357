"""topogate simulate: where would this gang go? From files alone, without any cluster.

The cluster is what `kubectl get nodes,pods -A -o json` (or yaml) prints; the manifest is what would be
applied. Every pod of the manifest belongs to one gang; a Job or another workload counts as its pods.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import msgspec

from webhook.cli.terminal import complain, say
from webhook.inquiry.manifest import InputError
from webhook.inquiry.simulation import read
from webhook.placement import Assignment, Gang, Mode, NoFit, Options, PlacementError, check, place
from webhook.placement.names import natural


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the subcommand `simulate`."""
    parser = subparsers.add_parser(
        "simulate",
        help="say where a manifest's pods would be placed, without a cluster",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--cluster", action="append", required=True, type=Path, metavar="FILE",
        help="nodes and pods as YAML or JSON; may be given more than once, - reads standard input",
    )  # fmt: skip
    parser.add_argument("manifest", type=Path, help="pods, Jobs or JobSets as YAML or JSON, - for stdin")
    parser.add_argument(
        "--required", metavar="LEVEL", help="overrides the required level: block, subblock ..."
    )
    parser.add_argument("--preferred", metavar="LEVEL", help="overrides the preferred level")
    parser.add_argument("--mode", choices=[mode.value for mode in Mode], default=Mode.BEST_FIT.value)
    parser.add_argument("--output", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    """Print the assignment (status 0) or the reason why there is none (1); 2 for unusable input."""
    try:
        gang, snapshot, notes = read(args.cluster, args.manifest)
        gang = _with_overrides(gang, args)
        found = place(gang, snapshot, Options(mode=Mode(args.mode)))
    except (InputError, PlacementError) as error:
        complain(f"topogate simulate: {error}")
        return 2
    if isinstance(found, Assignment):
        problems = check(found, gang, snapshot)
        if problems:
            raise AssertionError(f"the assignment breaks rules: {problems}")
    if args.output == "json":
        print(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        _print(found, gang)
    for note in notes:
        complain(f"topogate simulate: note: {note}")
    return 0 if isinstance(found, Assignment) else 1


def _print(found: Assignment | NoFit, gang: Gang) -> None:
    if isinstance(found, NoFit):
        say(found.sentence)
        return
    ranks = {member.name: member.rank for member in gang.members}
    doubt = "" if found.proven else " (the best found; not proven to be the best there is)"
    say(f"Gang {gang.name}: {len(found.placed)} pods on {found.spread}{doubt}")
    rows = sorted(
        found.placed, key=lambda p: (ranks[p.member] is None, ranks[p.member] or 0, natural(p.member))
    )
    width = max(len(placed.member) for placed in rows)
    for placed in rows:
        cards = "|".join(
            ",".join(share.card + "".join(f":gt{tile}" for tile in share.tiles) for share in slot)
            for slot in placed.cards
        )
        say(f"  {placed.member:<{width}}  {placed.node}{'  ' + cards if cards.strip('|') else ''}")


def _with_overrides(gang: Gang, args: argparse.Namespace) -> Gang:
    return replace(
        gang,
        required_level=args.required or gang.required_level,
        preferred_level=args.preferred or gang.preferred_level,
    )
