"""What a plain installation holds, checked from inside one."""
