"""Which models, losses and layers `tallystick.capture` takes, and how close it is to torch."""
