"""One history of the job store: every short one, and long ones.

`world` says what can happen next around a real store: a call, a tick, a worker that forgets. `explorer` goes every
way once, `invariants` looks at each step for a broken promise. `explore` is the command; it also takes a guard
out, by its name in `guards`, and shows the shortest history that goes wrong without it. For long lives `simulate`
draws calls and faults by a seed and compares each answer with `model`, the contract in plain dicts. `job_checker`
looks at a file from outside and says what does not hold in it.

In: a small world; a seed; the name of a guard; a file. Out: no broken promise, or the history that breaks one.
"""
