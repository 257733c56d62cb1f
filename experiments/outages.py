"""What became of every failure: when it was noticed and repaired, and what was lost until the next.  Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from experiments.failure_schedule import State
from experiments.timeline import Struck
from testbed.link_faults import Losses


def outages(
    struck: Sequence[Struck], detections: Sequence[Mapping[str, Any]], *, start_ns: int, end: Losses
) -> list[dict[str, Any]]:
    """The section `failures` of results.json, a line per failure.

    `detections` are the controller's words; `end` is what was lost until the fabric came to rest.  Times are from time
    0 of the schedule; an empty one did not happen: nobody notices a lossy cable, or a flap shorter than the delay.
    """
    found = []
    for number, each in enumerate(struck):
        until = struck[number + 1].losses if number + 1 < len(struck) else end
        seen = _detections(each, detections, struck[number + 1 :])
        lost = asdict(until - each.losses)
        found.append(
            {
                "at_us": _us(each.at_ns, start_ns),
                "what": each.failure.words,
                "detected_us": _last_us(seen, "detected_ns", start_ns),
                "repaired_us": _last_us(seen, "repaired_ns", start_ns),
                **{f"lost_{cause}": packets for cause, packets in lost.items()},
            }
        )
    return found


def unrepaired(detections: Sequence[Mapping[str, Any]], hosts_links: frozenset[str]) -> list[str]:
    """Links between switches around which nobody found a way in time, in words."""
    return [
        f"link {each['link']} was noticed to be {'up' if each['up'] else 'down'}, and the switches' tables never "
        "became what that asks for"
        for each in detections
        if each["repaired_ns"] is None and each["link"] not in hosts_links
    ]


def _detections(
    struck: Struck, detections: Sequence[Mapping[str, Any]], later: Sequence[Struck]
) -> list[Mapping[str, Any]]:
    """Those that this failure caused: of its links, in its direction, before the same link was struck again."""
    deed = struck.failure.deed
    if not isinstance(deed, State):
        return []
    found = []
    for link in struck.failure.links:
        again_ns = [it.at_ns for it in later if link in it.failure.links and isinstance(it.failure.deed, State)]
        mine = (
            each
            for each in detections
            if each["link"] == link
            and each["up"] == deed.up
            and struck.at_ns <= each["seen_ns"] <= min(again_ns, default=each["seen_ns"])
        )
        found += [first] if (first := next(mine, None)) is not None else []
    return found


def _last_us(detections: Sequence[Mapping[str, Any]], name: str, start_ns: int) -> float | None:
    times = [each[name] for each in detections]
    return None if not times or None in times else _us(max(times), start_ns)


def _us(at_ns: int, start_ns: int) -> float:
    return (at_ns - start_ns) / 1e3
