"""Recorded requests answered anew by both arms, or by another server: is the method lossless?"""
