"""The recipe of a minimal machine image with agentd as its main process: `image/build`.

    debian.py     what comes from Debian: a tree of unpacked packages, and a kernel with its modules
    python.py     what comes from PyPI and from this repository: site-packages, cut to what a guest needs
    tree.py       the two put together, with everything that package scripts would have made
    pack.py       trees as files: cpio, ext4
    manifest.py   what was built, from what, and with which digest

Nothing here is installed with agentd. The standard library and Debian's tools do it all, without a container engine.
"""
