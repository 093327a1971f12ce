"""Object stores: S3, Google, Azure and a directory, through the library `obstore`.

`address` reads the URL, `store` speaks to the store, `mirror` shows its objects as files that come
when they are opened, `opening` mounts a mirror, `cache` says where the files lie. A store is not
trusted: what it gives is checked as any party's file is, by the digests that the caller knows.
"""
