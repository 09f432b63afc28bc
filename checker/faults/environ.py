"""Wrong versions of `agentd.rules.environ`, and of how a handler would use it."""

from collections.abc import Mapping

from checker.faults import Function, fault

MODULE = "agentd.rules.environ"
GLUE = "checker.models.exec_start"
Layer = Mapping[str, str]
Env = tuple[tuple[str, str], ...]
Live = tuple[tuple[bytes, bytes], ...]


@fault("the identity is on top", MODULE, "layer")
def _identity_on_top(right: Function, image: Layer, identity: Layer, launch: Layer, request: Layer) -> Layer:
    return {**image, **launch, **request, **identity}


@fault("the image is on top", MODULE, "layer")
def _image_on_top(right: Function, image: Layer, identity: Layer, launch: Layer, request: Layer) -> Layer:
    return {**identity, **launch, **request, **image}


@fault("launch goes over request", MODULE, "layer")
def _launch_on_top(right: Function, image: Layer, identity: Layer, launch: Layer, request: Layer) -> Layer:
    return {**image, **identity, **request, **launch}


@fault("the image is always inherited", MODULE, "inherited")
def _always(right: Function, image: Layer, inherit: bool) -> Layer:
    return image


@fault("the image is never inherited", MODULE, "inherited")
def _never(right: Function, image: Layer, inherit: bool) -> Layer:
    return {}


@fault("the snapshot is not filtered", MODULE, "belongs_to_daemon")
def _unfiltered(right: Function, name: bytes) -> bool:
    return False


@fault("the snapshot drops what looks like it", MODULE, "belongs_to_daemon")
def _looks_like(right: Function, name: bytes) -> bool:
    return b"AGENTD_" in name


@fault("what is not text is replaced", MODULE, "as_text")
def _replaced(right: Function, name: bytes, value: bytes) -> tuple[str, str]:
    return name.decode(errors="replace"), value.decode(errors="replace")


@fault("the image layer is the live environment", GLUE, "image_layer")
def _live(right: Function, snapshot: Env, live: Live) -> Layer:
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, value in live}


@fault("health counts the live environment", GLUE, "image_keys")
def _counts_live(right: Function, snapshot: Env, live: Live) -> int:
    return len(live)
