"""The tables of OVT and Verde at their sizes, beside ours: `tallystick bench paper`."""
