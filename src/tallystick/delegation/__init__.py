"""Refereed delegation between k parties: sessions, clocks, the referee's log (PROTOCOL 10 to 14).

No disk, no network and no clock: the caller injects them.
"""
