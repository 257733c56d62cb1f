"""`--policy NAME[:key=value,...]`: one name and one list of keys for how paths are chosen and how ports behave.

    roce:lb=flowlet,gap=100us,cc=dctcp,kmin=4us     a preset for the ports; lb names the load balancer
    ecmp:seed=3,buffer=8MB                          a load balancer; its ports are `lossy`

Keys belong to the chosen load balancer or to the ports; where both have one, it is the balancer's, and the port's is
written with its group: `pfc.alpha`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from controller.policies import POLICIES, parse_policy
from controller.policies.base import Policy
from controller.port_policies import dctcp, lossy, pfc_only, roce
from controller.port_policies.preset import Preset
from controller.port_policies.settings import PortPolicy, parameters, plain
from topologies.errors import UnknownName, UserError
from topologies.registry import parse_parameters

PRESETS: Mapping[str, Preset] = MappingProxyType(
    {module.PRESET.name: module.PRESET for module in (lossy, dctcp, roce, pfc_only)}
)
"""Name -> preset, in the order `./run list` shows them."""
DEFAULT_BALANCER = "ecmp"


@dataclass(frozen=True, kw_only=True)
class Composition:
    """A whole `--policy`."""

    spec: str
    preset: str
    ports: PortPolicy
    balancer: Policy
    balancer_spec: str
    """As `parse_policy` reads it: what the controller's process is told."""

    @property
    def host_settings(self) -> dict[str, str]:
        """What the hosts must be set to, unless the user says otherwise."""
        return {"cc": self.ports.cc, "ecn": "on" if self.ports.marks else "off"}


def parse_composition(spec: str) -> Composition:
    """Raises UserError naming what is wrong; UnknownName for a name or key that does not exist."""
    name, _, rest = spec.strip().partition(":")
    if name not in PRESETS and name not in POLICIES:
        raise UnknownName("policy", name, [*PRESETS, *POLICIES])
    given = parse_parameters(rest, where=f"policy {name}")
    if name in PRESETS:
        preset, balancer = name, given.pop("lb", DEFAULT_BALANCER)
    elif "lb" in given:
        raise UserError(f"policy {name}: it is a load balancer itself; write lossy:lb={given['lb']} for the other one")
    else:
        preset, balancer = lossy.PRESET.name, name
    if balancer not in POLICIES:
        raise UnknownName("load balancer lb", balancer, POLICIES)
    own = {key: given[key] for key in given if key in POLICIES[balancer].parameters()}
    ports = {key: text for key, text in given.items() if key not in own}
    for key in ports:
        if plain(key) not in parameters():
            known = [*parameters(), *POLICIES[balancer].parameters(), *(["lb"] if name in PRESETS else [])]
            raise UnknownName(f"parameter of policy {name}", key, known)
    balancer_spec = balancer + "".join(
        f"{',' if number else ':'}{key}={text}" for number, (key, text) in enumerate(own.items())
    )
    return Composition(
        spec=spec,
        preset=preset,
        ports=PRESETS[preset].policy.changed(ports, where=f"policy {name}"),
        balancer=parse_policy(balancer_spec),
        balancer_spec=balancer_spec,
    )
