"""Answers and encodings as `spec/ANSWERS.md` says them: files, jobs, words, runs.

It imports nothing of the package.
"""
