"""Whether the backend works here, found by really starting one sandbox, with what to change where it does not."""

from dataclasses import replace

from firewall import standing
from policy.errors import Broken
from policy.limits import PROBE_S
from proxy.loop import Loop
from sandbox.child import Launch
from sandbox.supervisor import Supervisor

_WITNESS = "sandbox is up"


def require(launch: Launch) -> None:
    """Start the launch's sandbox with a command that only says so; raises `Broken` with the reason and the remedy."""
    trial = replace(launch.plan, command=("echo", _WITNESS), timeout_s=PROBE_S)
    loop = Loop()
    supervisor = Supervisor(loop, replace(launch, plan=trial))
    try:
        supervisor.start()
        while supervisor.outcome is None:
            loop.turn()
    finally:
        loop.close()
    outcome = supervisor.outcome
    if outcome.exit == 0 and outcome.stdout.decode("utf-8", "replace").strip() == _WITNESS and outcome.acknowledged:
        return
    said = outcome.stderr.decode("utf-8", "replace").strip() or outcome.failure
    if outcome.timed_out:
        said = f"it did not start within {PROBE_S:.0f} s"
    if "Unknown option" in str(said):
        hint = "bubblewrap is too old: 0.10 is needed, or a distribution's 0.8 that knows --bind-fd"
    elif "/proc" in str(said) and "mount" in str(said).lower():
        hint = "a container hides parts of /proc, so a fresh one may not be mounted: start it with its /proc unmasked"
    else:
        hint = standing.remedy()
    raise Broken(f"backend bwrap: a sandbox cannot be started here: {said}; {hint}")
