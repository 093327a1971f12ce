"""A job in words: what is trained, derived from what the job digest covers, and from nothing else.

`job_in_words(terms)` reads programs, scalars, schemas and the timetable. `words_of(job)` adds what
stands beside them in the manifest, under a label of its own. `sentences` are for pages and
terminals, `against` compares two jobs. Nothing here loads torch.
"""

from tallystick.job.words.parts import JobInWords as JobInWords
from tallystick.job.words.reading import job_in_words as job_in_words
from tallystick.job.words.reading import words_of as words_of
from tallystick.job.words.sentences import against as against
from tallystick.job.words.sentences import beside as beside
from tallystick.job.words.sentences import rows as rows
from tallystick.job.words.sentences import sentences as sentences
