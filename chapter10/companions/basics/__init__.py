"""What is let in, and a task that is owned: two helpers beneath all other rooms.

A value comes to a door. `arguments` asks whether it is what the door takes and hands it back, or raises the error
of the module whose door it is. Behind the door work begins: `tasks` starts a coroutine, waits for it, stops it,
and knows in every case how it ended.

In: a value; a coroutine. Out: the same value, or a coded refusal; a task that is done, and how.
"""
