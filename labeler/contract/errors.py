"""The one error of the wire contract."""


class ContractError(ValueError):
    """A label or an annotation does not say what its format allows; the message names key and text."""
