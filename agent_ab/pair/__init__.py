"""Two attempts made a pair: is it valid, and what did it come to?"""
