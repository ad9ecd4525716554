"""Why a container cannot be started yet. The node tries again; the reason stands in the status."""

from __future__ import annotations


class NotReadyError(Exception):
    """Something that a container needs is not there yet; `reason` is kubelet's word for it."""

    reason = "ContainerCreating"


class ContainerConfigError(NotReadyError):
    """A variable refers to an object or key that does not exist."""

    reason = "CreateContainerConfigError"


class VolumeNotReadyError(NotReadyError):
    """A volume cannot be set up: an object is missing, or a path is not what it must be."""


class AddressesExhaustedError(NotReadyError):
    """No loopback address has the wanted ports free."""
