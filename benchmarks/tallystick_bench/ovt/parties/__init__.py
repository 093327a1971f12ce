"""The parties: a job under an arm, one process for each kind of hardware, side by side."""
