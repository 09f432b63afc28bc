"""Files and trees: streaming reads and writes, line windows, archives in and out, listing, removal."""
