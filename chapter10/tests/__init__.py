"""The specification in sentences: `python -m unittest discover -s chapter10/tests -v` from the top folder."""
