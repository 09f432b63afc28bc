"""Virtual machines on this host, as a thin layer over QEMU's machine protocol.

    image.py      what `image/build` made: files, kernel line, memory
    command.py    QEMU's command line for a machine
    qmp.py        the machine protocol: commands, events
    process.py    the QEMU process, attached to this one or on its own
    machine.py    one machine: start, ready, pause, save, clone, end
    platform.py   the lifecycle hooks around it, in the platform's order and within its limits

It belongs to the host: nothing in the daemon imports it. It is no hypervisor and holds no pool: one object is one
machine, in one directory, and whoever starts it ends it.
"""
