"""The relay from a WebSocket to a loopback TCP port, and the Noise session that can seal it."""
