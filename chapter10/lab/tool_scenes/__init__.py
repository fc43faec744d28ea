"""The scenes of the tool layer, in the order of one call.

A tool is found by a plain question (`ranking`), its arguments are looked at (`schema`), the call passes the one
boundary, with every fault (`registry`), runs beside others or alone (`orchestration`), its result meets the two
limits (`results`), and the conversation goes on or ends (`turn`). A client from outside takes the same way through a
door (`serving`). Each file is one group of `python -m chapter10 companions`.

In: fixed blocks, cues, faults. Out: the figures and events of a group.
"""
