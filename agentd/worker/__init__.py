"""The worker face: the 29 functions of the iii shell worker, for an iii engine and over HTTP."""
