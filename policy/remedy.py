"""What a person would write to grant what was refused: the same words in an explanation, a refusal and a run's summary."""

from policy.address import Floor, classify, counts_as
from policy.destination import Destination
from policy.host import Address
from policy.verdict import Reason, Verdict


def remedy(verdict: Verdict, destination: Destination) -> str | None:
    """What a person would write to grant what was refused, in one sentence; None where no policy can."""
    host, port = destination.host, destination.port
    offender = verdict.address or destination.address
    if verdict.reason.startswith("address-") and (offender is None or _is_hard(offender)):
        return None
    ports = "" if port in (80, 443) else f", ports = [{port}]"
    named = f'hosts = ["{host}"]' if destination.name else f'addresses = ["{host}"]'
    match verdict.reason:
        case Reason.NOT_GRANTED if verdict.grant:
            return f"To grant tunnels to it, write in a [[grant]] without intercept: {named}{ports}"
        case Reason.NOT_GRANTED:
            return f"To grant it, write in a [[grant]]: {named}{ports}"
        case Reason.PORT_NOT_GRANTED:
            return f"To grant it, add {port} to the ports of the grant {verdict.grant}."
        case Reason.GRANT_EXPIRED:
            return f"To grant it again, give the grant {verdict.grant} a later until."
        case Reason.METHOD_NOT_GRANTED | Reason.PATH_NOT_GRANTED:
            return f"To grant it, add to the {'methods' if 'method' in verdict.reason else 'paths'} of {verdict.grant}."
        case Reason.REFUSED_BY_RULE:
            return f"To grant it, take it out of the refuse rule {verdict.rule} of {verdict.layer}."
        case Reason.NAME_SPECIAL:
            return f"To grant it, write in a [[grant]]: {named}{ports}, private = [its network]"
        case Reason.ADDRESS_PRIVATE | Reason.ADDRESS_RESERVED if destination.name:
            return f'To grant it, write in a [[grant]]: {named}{ports}, private = ["{offender}"]'
        case Reason.ADDRESS_PRIVATE | Reason.ADDRESS_RESERVED:
            return f"To grant it, write in a [[grant]]: {named}{ports}"
    return None


def _is_hard(address: Address) -> bool:
    reached = counts_as(address)
    return reached is None or classify(reached).floor is Floor.HARD
