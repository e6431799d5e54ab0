"""The verdict: its nouns and sentences, and its forms for terminals and CI."""
