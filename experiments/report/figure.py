"""A figure as a value: a drawing with its title, or the reason why there is none; and what figures are drawn from."""

from dataclasses import dataclass
from functools import cached_property

from experiments.report.bins import Bins, bin_ports
from experiments.report.series import Series
from experiments.results import Results
from topologies.model import Topology


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A picture for the page."""

    title: str
    svg: str
    note: str = ""
    wide: bool = False
    """Takes the page's whole width, and may be scrolled sideways on a narrow one."""


@dataclass(frozen=True, kw_only=True)
class Absent:
    """A figure that this run has nothing for."""

    title: str
    why: str


@dataclass(frozen=True)
class Run:
    """What a folder holds, read."""

    results: Results
    topology: Topology
    series: Series

    @cached_property
    def bins(self) -> Bins | None:
        """Ports in steps of time; None where nothing was sampled or nothing moved."""
        return bin_ports(self.series.ports, self.topology) if self.series.ports is not None else None

    @property
    def no_ports(self) -> str:
        """Why there are no bins."""
        return self.series.missing.get("ports", "no port sent a byte while it was sampled")

    @cached_property
    def node_of(self) -> dict[str, str]:
        """Interface -> its node."""
        return {end.name: end.node for end in self.topology.interfaces()}

    def direction(self, interface: str) -> str:
        """`leaf2 > spine1`, with the cable's number where there are several."""
        link = self.topology.link_of[interface]
        number = f" ({link.number})" if link.number > 1 else ""
        return f"{self.node_of[interface]} > {self.topology.peer_of[interface].node}{number}"
