r"""PFC: what a pause saves, whom it hurts, how far it travels, and how it can stop a fabric.

    incast        N NICs into one port: no loss with the policy's headroom, loss with half of it
    victim        a flow that shares a paused class, but not the congested port, loses throughput; in a class of its
                  own it loses none
    propagation   the pause tree: who paused whom, and when, from the congested port back to the hosts
    storm         a broken NIC pauses its leaf for ever: the watchdog ends that, in time, and only that
    deadlock      paths round a ring: buffers wait for each other and the fabric stands still, until watchdogs break it

    h1 --+                        +--> h5    congested: h1 and others send here
    h2 --+ [leaf1]====[leaf2] ----+--> h6    h2 sends here, and waits behind h1 all the same

Senders are UDP sockets that only their own NIC holds back, as RoCE without congestion control; `--set scenarios=` takes
some of the names, and by default all run that the fabric and the policy allow.

    ./run experiments/pfc.py --pcap leaf2
    ./run experiments/pfc.py --topology ring --policy pfc_only:lb=single         deadlocks
    ./run experiments/pfc.py --topology ring --policy pfc_only:lb=up_down        does not
"""

from pydantic import Field, field_validator

from experiments.experiment import Experiment, main
from experiments.lab import Lab
from experiments.settings import Settings as BaseSettings
from experiments.settings import Size, Words, written
from experiments.workloads.pfc import deadlock, incast, propagation, storm, victim
from experiments.workloads.pfc.scenario import Scenario, line_time_ns
from experiments.workloads.pfc.stage import Stage
from testbed.port.fabric_port import FabricPort
from topologies.errors import UnknownName, UserError

SCENARIOS = {
    scenario.name: scenario
    for scenario in (incast.SCENARIO, victim.SCENARIO, propagation.SCENARIO, storm.SCENARIO, deadlock.SCENARIO)
}
FITTING = ("fitting",)
LEAST_BYTES, MOST_BYTES = 2_500_000, 1_000_000_000


class Settings(BaseSettings):
    """Which scenarios, and how much is sent."""

    scenarios: Words = Field(
        default=written("fitting"), description=f"some of {', '.join(SCENARIOS)}; fitting: all that can be played here"
    )
    volume: Size = Field(
        default=written("6.25M"),
        description="bytes for which the slowest NIC has time while streams last: 500 us at 100 Gb/s",
    )

    @field_validator("scenarios")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if value != FITTING and name not in SCENARIOS:
                raise ValueError(str(UnknownName("scenario", name, [*SCENARIOS, *FITTING])))
        return value

    @field_validator("volume")
    @classmethod
    def _enough(cls, value: int) -> int:
        if not LEAST_BYTES <= value <= MOST_BYTES:
            raise ValueError(f"write a size from {LEAST_BYTES} to {MOST_BYTES} B: buffers must have time to fill")
        return value


def run(lab: Lab, settings: Settings) -> None:
    """One scenario after the other; each leaves the fabric as it found it."""
    _check_ports(lab)
    chosen = _chosen(lab, settings.scenarios)
    with Stage(lab) as stage:
        for scenario in chosen:
            lab.say(f"{scenario.name}: {scenario.question}")
            scenario.play(stage, line_time_ns(lab.topology, settings.volume))


def _check_ports(lab: Lab) -> None:
    """Raises UserError where there is nothing that could pause."""
    if lab.plan.kind != FabricPort.name or not lab.plan.composition.ports.pfc:
        raise UserError(f"--policy {lab.request.policy}: no class is lossless; use pfc_only or roce, or set pfc=on")


def _chosen(lab: Lab, names: tuple[str, ...]) -> list[Scenario]:
    """Raises UserError for a scenario that was asked for by name and cannot be played."""
    obstacles = {name: scenario.obstacle(lab.plan) for name, scenario in SCENARIOS.items()}
    if names != FITTING:
        for name in names:
            if obstacles[name]:
                raise UserError(f"--set scenarios={name}: {obstacles[name]}")
        return [SCENARIOS[name] for name in names]
    for name, obstacle in obstacles.items():
        if obstacle:
            lab.say(f"{name}: left out, {obstacle}")
    found = [scenario for name, scenario in SCENARIOS.items() if not obstacles[name]]
    if not found:
        raise UserError("no scenario can be played here: " + "; ".join(f"{k}: {v}" for k, v in obstacles.items()))
    return found


EXPERIMENT = Experiment(
    name="pfc",
    question="What does a pause save, whom does it hurt, how far does it travel, and how can it stop a fabric?",
    settings=Settings,
    run=run,
    topology="leaf_spine:leaves=3,hosts=8,spines=1,uplink_rate=400G",
    policy="pfc_only:classes=8:1",
    host={"moderation": "off"},  # receivers note when every packet came
    sample="off",  # a sampler's reading would reset the peaks of single classes that the headroom is judged by
    needs_torch=False,
)

if __name__ == "__main__":
    main(EXPERIMENT)
