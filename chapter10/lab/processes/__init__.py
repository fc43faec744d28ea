"""Job and cancel among real processes, which are killed and frozen.

`two_terminals` plays one story with twenty exports: one worker is killed, one frozen past its lease, and every job
ends once. `chaos` lets chance do it: it starts a few of `chaos_worker`, kills, stops and continues them while jobs
rain in, and then has the file examined from outside. `stops` writes one cancel row and goes down the ladder for
four processes.

In: a number of seconds, workers, a seed. Out: a timeline from the event log; lost 0, duplicated 0; what stopped
whom.
"""
