"""The scenes of time, faults and effects, from the deadline to the mail.

One deadline for a chain of calls (`budget`), a cancel that reaches other processes (`interruption`), which of
three clocks has run out (`clocks`). A call fails: it is repeated or not (`retry`), and at last left alone
(`breaker`). Its effect is made once (`idempotency`), its message leaves with the write (`outbox`), and all of it
together is an export that ends with a mail (`mail`). `outage_day` plays a day of receivers that fail, and
`order_service` is killed in earnest. Each other file is one group of `python -m chapter10 companions`.

In: logical time, faults by script. Out: the figures and events of a group.
"""
