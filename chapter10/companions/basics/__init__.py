"""What is let in, a task that is owned, a lock that is waited for, a module of the user's, and whose fault it was:
five helpers beneath all other rooms.

A value comes to a door. `arguments` asks whether it is what the door takes and hands it back, or raises the error
of the module whose door it is. Behind the door work begins: `tasks` starts a coroutine, waits for it, stops it,
and knows in every case how it ended. Another process has the database: `locks` waits for it and leaves the loop
free. `modules` loads what a person named in a command. It ended badly: `blame` says of the error whose it is, whether
anybody was reached, and whether the work may have been done all the same.

In: a value; a coroutine; an error. Out: the same value, or a coded refusal; a task that is done, and how; whose it is.
"""
