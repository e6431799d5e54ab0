"""Is a task worth its verdicts?"""
