"""Kinds of findings of driving logs alone."""

from penstock.formats.base.findings import FindingKind

FINDINGS = {
    "impossible-speed": FindingKind(
        "warning", "An agent of a driving log is faster than 70 m/s.", "Leave the agent out, or correct its track."
    ),
    "missing-light": FindingKind(
        "warning",
        "A traffic light of a driving log is not in the map next to the log.",
        "Use the map of the same release, or leave the lights out.",
    ),
    "unread-part": FindingKind(
        "note",
        "A driving data set has maps or recordings of sensors, which samples do not need.",
        "Read them with the data set's own tools.",
    ),
}
