"""`topogate map`: the network tree with a bar for each domain: used, planned, reserved for a gang, free."""

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.cli import scene, session
from webhook.cli.terminal import columns, fitted, is_coloured
from webhook.text import counted, printable

if TYPE_CHECKING:
    from webhook.ui.availability import ModelCapacity
    from webhook.ui.picture import DomainTile, NodeTile, Picture

WIDTH: Final = 32
_USED, _WAITING, _RESERVED, _FREE = "#", "+", "=", "."
_COLOURS: Final = {_USED: "\033[34m", _WAITING: "\033[33m", _RESERVED: "\033[35m"}
_PLAIN: Final = "\033[0m"


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser of `topogate`."""
    parser = subparsers.add_parser("map", help="the network tree: used, planned, reserved, free")
    session.add_connection(parser)
    session.add_configuration(parser)
    parser.add_argument("--level", default="", help="the lowest to show; default: the one above the host")
    session.add_selector(parser, "nodes")
    session.add_watch(parser)
    session.add_output(parser, (*session.DOCUMENTS, "wide"))


def run(options: argparse.Namespace) -> int:
    """Print the map; 1 if the cluster cannot be read, 2 for a wrong argument."""
    return session.guarded(options, lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    api = session.connect(options)
    configuration = scene.configuration_of(options, api)
    levels = list(configuration.settings.topology.level_names)
    if options.level and options.level not in levels:
        below = "; single nodes are on the page: topogate ui" if options.level == "node" else ""
        raise session.MistakeError(
            f"{options.level!r} is not a level of the map; use one of {', '.join(levels)}{below}"
        )
    lowest = levels.index(options.level) if options.level else max(0, len(levels) - 2)
    from webhook.inquiry.cluster_state import ClusterReading

    def show() -> None:
        cluster = scene.of_selected(ClusterReading.read(api), api, options)
        found = scene.scene_of(cluster, configuration)
        drawn = found.picture
        shown = [domain for domain in drawn.domains if domain.level <= lowest]
        if options.output in session.DOCUMENTS:
            session.show(msgspec.to_builtins(shown), options.output)
            return
        _print(drawn, shown, lowest, is_wide=options.output == "wide")
        for line in model_lines(found.capacity):
            print(line)

    return session.repeat(options, show)


def _print(picture: "Picture", shown: "Sequence[DomainTile]", lowest: int, *, is_wide: bool) -> None:
    """Print the domains, and with is_wide the gangs of each domain of the lowest level."""
    drawing = lines(shown, is_coloured=is_coloured(), most=0 if is_wide else columns())
    below = holders(picture, lowest) if is_wide else {}
    for domain, line in zip_longest(shown, drawing):
        print(line)
        for holder in below.get(domain.id, ()) if domain else ():
            print(f"{'  ' * (lowest + 1)}{holder}")


def model_lines(capacity: "Iterable[ModelCapacity]") -> Iterator[str]:
    """The free GPUs of each model, and what of the free capacity the next pod cannot use."""
    for each in capacity:
        stranded = f"; {each.stranded}" if each.stranded else ""
        yield f"{printable(each.model) or 'GPUs'}: {each.free} free of {each.gpus}{stranded}"


def lines(domains: "Sequence[DomainTile]", *, is_coloured: bool, most: int = 0) -> Iterator[str]:
    """One line a domain, indented by its level, with at most this many columns; 0: no limit."""
    if not domains:
        yield "No node has a GPU."
        return
    width = max(2 * domain.level + len(printable(domain.name)) for domain in domains)
    for domain in domains:
        name = f"{'  ' * domain.level}{printable(domain.name)}"
        free = domain.gpus - domain.used - domain.waiting
        reserved = f", {domain.reserved} of them reserved" if domain.reserved else ""
        excluded = f", {counted(domain.nodes[-1], 'node')} excluded" if domain.nodes[-1] else ""
        counts = (
            f"{domain.used:>6} used {domain.waiting:>5} planned {free:>6} free{reserved} "
            f"of {domain.gpus} GPUs, {domain.whole} on whole nodes{excluded}"
        )
        left = max(1, most - width - WIDTH - 4) if most else 0
        yield f"{name:<{width}}  {bar(domain, is_coloured)}  {fitted(counts, left)}"


def holders(picture: "Picture", level: int) -> dict[str, list[str]]:
    """By the id of each domain of the level, the gangs with GPUs there, as on the page: the largest first."""
    tiles: dict[str, list[NodeTile]] = {}
    for tile in picture.nodes.values():
        tiles.setdefault("/".join(tile.domain.split("/")[: level + 2]), []).append(tile)
    return {domain: list(_holders(tiles[domain])) for domain in tiles}


def _holders(tiles: "Iterable[NodeTile]") -> Iterator[str]:
    """Gangs, and pods without a gang, by the GPUs that they use; then reservations of waiting gangs."""
    gpus: Counter[str] = Counter()
    pods: Counter[str] = Counter()
    reserved: Counter[str] = Counter()
    for tile in tiles:
        for pod in tile.pods:
            name = f"{pod.namespace}/{pod.gang or pod.name}"
            gpus[name] += pod.gpus
            pods[name] += 1
        if tile.reserved_for:
            reserved[tile.reserved_for] += 1
    for name, count in gpus.most_common():
        yield f"{printable(name)}: {counted(count, 'GPU')}, {counted(pods[name], 'pod')}"
    for name, count in reserved.most_common():
        yield f"{counted(count, 'node')} reserved for {printable(name)}"


def bar(domain: "DomainTile", is_coloured: bool) -> str:
    """WIDTH characters in the proportions of the domain's GPUs; each kind that occurs has at least one."""
    total = max(1, domain.gpus)
    used = _share(domain.used, total)
    waiting = min(WIDTH - used, _share(domain.waiting, total))
    reserved = min(WIDTH - used - waiting, _share(domain.reserved, total))
    free = WIDTH - used - waiting - reserved
    parts = ((_USED, used), (_WAITING, waiting), (_RESERVED, reserved), (_FREE, free))
    if not is_coloured:
        return "".join(mark * count for mark, count in parts)
    return "".join(
        f"{_COLOURS[mark]}{mark * count}{_PLAIN}" if mark in _COLOURS else mark * count
        for mark, count in parts
    )


def _share(part: int, total: int) -> int:
    return min(WIDTH, max(1, round(WIDTH * part / total))) if part > 0 else 0
