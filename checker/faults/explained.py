"""Why some faults need not be noticed: what they change cannot be told apart by anything the daemon does.

Automatic faults are named by module, function, operator and number (`checker.mutation`), seeded ones by their
name. ``checker mutants`` prints these reasons beside the faults they excuse.
"""

EXPLAINED: dict[str, str] = {
    "bootstrap.bearer_token connect 2": (
        "'Bearer' without a space then presents an empty token instead of none, and both are refused alike"
    ),
    "execs.shows_outcome connect 3": "an exited exec always holds its output: that is itself a property",
    "execs.collect connect 2": "a record has a time of acknowledgement exactly if it is acknowledged",
    "execs.collect connect 3": "a record has a time of acknowledgement exactly if it is acknowledged",
}
