"""One guess, and what the run says to it.

A reader is about to run a group. Its questions stand in `predictions` (the chapter's five), `predictions_tools`,
`predictions_resilience` or `predictions_effects`, written down with the words of `areas`. `predict` shows the
scene, takes a letter for each question, runs the group, works the right letters out from this very run, and puts
both beside each other with the reason and the line of code. `questions` does so for the three that end the
orchestration document.

In: the name of a group, letters. Out: guess and result side by side; nobody keeps a score.
"""
