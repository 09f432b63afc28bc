"""The one place that says which version this is."""

VERSION = "0.1.0"
"""The daemon's version: the value of the ``microvms-agentd-version`` header and of ``health.version``."""

PROTOCOL_VERSION = "1"
"""The wire protocol this daemon speaks (``protocol_version`` in ``GET /v1/schema``)."""
