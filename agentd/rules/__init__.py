"""Pure decisions: frozen values in, a verdict and new frozen values out.

Nothing here imports more than the standard library and attrs, reads a clock, touches a file or draws a
random number; whatever must be known is an argument. The daemon runs these functions and `checker`
enumerates them, so what is proved is what runs.
"""
