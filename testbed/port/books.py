"""What must add up at a port of the `fabric` qdisc, in packets and in bytes; and what must be empty at rest."""

from collections.abc import Iterator

from testbed.port.stats import ClassStats, PortStats


def broken(name: str, stats: PortStats, *, is_switch: bool) -> list[str]:
    """A sentence for each sum that is off; none when all is well.  The port is at rest: nothing queues, nothing flies.

    enqueued = sent + dropped + queued per class; sent + control = delivered + on the wire + lost on it, for the port;
    nothing is charged to the shared buffer; and a host's NIC has dropped nothing, except when its cable was pulled.
    """
    found = [f"port {name}: {what}" for what in _port(stats)]
    for index, each in enumerate(stats.classes):
        found += [f"port {name}, class {index}: {what}" for what in _class(each)]
        drops = each.dropped_packets
        if not is_switch and drops.total != drops.flush:
            found.append(f"host's NIC {name}: dropped {drops.total - drops.flush} packets of its own host")
    return found


def _port(stats: PortStats) -> Iterator[str]:
    for unit in ("packets", "bytes"):
        sent = sum(getattr(each, f"sent_{unit}") for each in stats.classes) + getattr(stats, f"control_{unit}")
        left = sum(getattr(stats, f"{part}_{unit}") for part in ("delivered", "wire", "wire_flushed"))
        if sent != left:
            yield f"{sent} {unit} began to be sent, {left} were delivered, are on the wire or were lost on it"
        if waiting := getattr(stats, f"queue_{unit}"):
            yield f"{waiting} {unit} still wait"
    if stats.shared_bytes:
        yield f"{stats.shared_bytes} B of the shared buffer are charged at rest"
    if stats.control_failed:
        yield f"{stats.control_failed} pause frames could not be made: the kernel had no memory"


def _class(stats: ClassStats) -> Iterator[str]:
    for unit in ("packets", "bytes"):
        dropped = getattr(stats, f"dropped_{unit}").total
        came, went = getattr(stats, f"enqueued_{unit}"), getattr(stats, f"sent_{unit}") + dropped
        went += getattr(stats, f"queue_{unit}")
        if came != went:
            yield f"{came} {unit} came, {went} were sent, dropped or wait"
    if stats.ingress_bytes or stats.headroom_bytes:
        yield f"{stats.ingress_bytes + stats.headroom_bytes} B of the buffer are charged to this ingress at rest"
