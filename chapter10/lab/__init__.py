"""What a reader uses to learn: predict and compare, exercises, an explorer of histories, a benchmark.

Guess first

    doctor          is this machine fit?
    predict         guess, run, compare; areas says how questions are written down
    predictions     about the chapter's groups; predictions_tools, predictions_resilience and predictions_effects
                    about those of the companions
    questions       three questions on orchestration, each answered by a run
    exercises       fourteen exercises, checked; workplace is where a reader's files are

Does it hold?

    explore         every history of a small world: world, explorer, guards and invariants
    simulate        long random lives against a plain model
    chaos           killed and frozen processes; chaos_worker is one of them, job_checker says what must hold
    two_terminals   one worker killed, one frozen, step by step
    stops           one cancel, and what it takes to stop each of four processes
    fuzz            bad input at scale, on fuzz_subjects
    mutants         does a test notice when the code is wrong? mutations makes the faults

Where is it?

    claim_map       each sentence of the book: promised, proved, broken; claims reads them, proofs doubts them
    site            the five groups on one page for a browser
    benchmark       what it costs; benchmarks has one area a file

Beneath them are textio (what is printed), strings (in which language) and virtual_time (a clock that jumps).
"""
