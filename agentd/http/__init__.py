"""The HTTP foundation of every face: decisions before bodies, caps, drains, streams, errors."""
