"""The only door to the disk (DESIGN 3): what is read may have been put there by anyone.

`regular` opens: regular files only, sizes before bytes, no link out of a directory, bounded
lists. `files` writes: whole or not at all, never through what is there already. `keys` keeps keys.
"""
