"""What this virtual machine is: accounts, image environment, disk headroom, identity, hook handlers."""
