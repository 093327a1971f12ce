"""Pages for people: a run, or a dispute, as one HTML file that needs nothing else to be read.

Theory of operation. `facts` reads and checks what is to be told, `run_page` and `dispute_page`
tell it, `page` holds what pages share. Text from outside reaches a page through `html` alone,
which escapes whatever is not markup made there.
"""
