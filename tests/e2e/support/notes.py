"""Measurements that a test saw on its way: printed at the end of the run, never asserted."""

NOTES = []


def note(text):
    NOTES.append(text)
