"""Claims: what a run, an audit or an answer says in the forms that other tools read (CLAIMS)."""
