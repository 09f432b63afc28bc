"""Children, their pipes and their ends: real ones, and scripted ones where time or order matters."""
