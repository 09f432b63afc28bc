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
    "supervision.step connect 4": "while lingering, pipes that end publish at once",
    "supervision.step connect 7": "settling once more before the result is published changes nothing",
    "supervision.step member 10": "an escalation that is done and none at all are told apart nowhere",
    "processes.delete connect 3": "only what is in the table can be deleted, and that has not been deleted before",
    "processes.writable connect 2": "a stdin that was not asked for is never open",
    "vm_life.hook_succeeded connect 3": "a VM is never pending again once it has its token",
    "vm_life.resume_complete connect 2": "a VM that was terminated is never suspended again",
    "resolution.primary_gid connect 3": "a user found by name always has the row with that name",
    "resolution.supplementary_groups connect 3": "a user found by name always has the row with that name",
}
