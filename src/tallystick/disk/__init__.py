"""The only door to the disk (DESIGN 3): any party may have put a file there.

`regular` opens regular files only. It checks sizes before bytes, follows no link out of a directory
and bounds lists. `files` writes a file whole or not at all, and never through an existing file.
`keys` keeps keys.
"""
