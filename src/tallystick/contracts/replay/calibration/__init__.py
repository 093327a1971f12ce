"""Calibration of the published form: samples of machines, and the thresholds they give."""
