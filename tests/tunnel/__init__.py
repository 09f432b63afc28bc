"""The tunnel: its Noise session, its WebSocket, and both ends of a relay over real sockets."""
