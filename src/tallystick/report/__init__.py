"""Pages for people: a run, or a dispute, as one HTML file that needs no other file.

Theory of operation. `facts` reads and checks the facts, `run_page` and `dispute_page` write them,
and `page` holds the parts that pages share. Text from outside reaches a page through `html` alone.
That module escapes all text but its own markup. `with_judge` puts evidence and the judge of
`built_judge` into a dispute's page, and `look` says of such a page what can be said by its bytes.
"""
