def document():
    return {"groups": []}
