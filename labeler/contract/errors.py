"""The one error of the wire contract."""


class ContractError(ValueError):
    """A label or an annotation does not match its format; the message names key and text."""
