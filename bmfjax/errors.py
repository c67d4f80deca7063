"""The one exception for bad input."""


class InputError(ValueError):
    """Input that cannot be used: the message says what, where and what to do.

    The command line prints the message alone and exits with code 2.

    Examples
    --------
    >>> raise InputError("rank is 0; give a number from 1 to 16")
    Traceback (most recent call last):
        ...
    bmfjax.errors.InputError: rank is 0; give a number from 1 to 16
    """
