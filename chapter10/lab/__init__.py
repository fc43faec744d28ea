"""What a reader uses to learn: to guess, to break, to measure, to look up.

The rooms, from below; each one's docstring follows one run, one guess or one file through its modules.

    console         one sentence on its way to a person, and one file of a reader on its way in
    evidence        one run, from what was called to the file that keeps it
    tool_scenes     the scenes of the tool layer, in the order of one call
    effect_scenes   the scenes of time, faults and effects, from the deadline to the mail
    guessing        one guess, and what the run says to it
    histories       one history of the job store: every short one, and long ones
    scheduler       one job on one page: every move is a button, and the store's answer is there
    processes       the same with real processes, which are killed and frozen
    reader          one visit: fit, story, guess, own data, page
    exercises       one exercise, from the stub to the verdict
    benchmarks      one figure, beside what nothing in Python could beat
    proof           one sentence of the book: where it is promised, proved and broken
"""
