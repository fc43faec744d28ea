"""One effect for one intent, and a message that leaves with the write.

The same request arrives twice. `intents` gives it the name of what is to happen, once, and the fingerprint of its
arguments; `intent_records` keeps what is known of it, in rows with a short fenced lease; `idempotency` makes the
effect, replays its result, waits or refuses. The effect tells somebody else: then `outbox_rows` stores the message
in the transaction of the business write, `relay` claims it, sends it outside any transaction and marks it, and
`inbox`, at the receiver, stores its id together with its effect. `messages` has the words that the three agree on,
`outbox` all of them in one place.

In: a request with its key; a business write with its message. Out: one effect; one delivery that counts.
"""
