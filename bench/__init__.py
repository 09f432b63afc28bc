"""Benchmarks: ratios against a floor taken in the same run, for any daemon that speaks the protocol."""
