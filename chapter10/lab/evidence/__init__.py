"""One run, from what was called to the file that keeps it.

A scene is played. Where the order matters, its handlers stand on a `stage` and wait for their cue; where seconds
matter, `virtual_time` is an event loop whose clock jumps. `evidence` notes each call with what came back, makes
the page with figures and pictures of it, and compares that page with the committed one, byte for byte.

In: a function that plays a scene. Out: figures, events, a page; the name of each file that differs.
"""
