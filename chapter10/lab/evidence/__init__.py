"""One run, from what was called to the file that keeps it.

A scene is played. Where the order matters, its handlers stand on a `stage` and wait for their cue; where seconds
matter, `virtual_time` is an event loop whose clock jumps. `evidence` notes each call with what came back. From
these notes `telling` makes sentences and lanes for a terminal, and `page` a page with figures and pictures;
`files` puts the pages in their place together, and compares the committed ones with a new run, byte for byte.

In: a function that plays a scene. Out: figures, events, a page; the name of each file that differs.
"""
