"""A verdict as JUnit XML: one test case a check, and one for the verdict. Pure."""

import xml.etree.ElementTree as ET

from agent_ab.verdict.verdict import Decision, Verdict
from agent_ab.wording import counted, plain_line

_NONCHARACTERS = str.maketrans(dict.fromkeys((0xFFFE, 0xFFFF), "\N{REPLACEMENT CHARACTER}"))
"""What XML 1.0 cannot hold, not even escaped, and `plain_line` leaves as it is."""


def junit(verdict: Verdict) -> str:
    """Return the document. A check fails where the evidence supports that it regressed; an observed flip is only told.

    The verdict's own case passes for ADOPT, fails for REJECT and INCONCLUSIVE, and is an error for INVALID.
    """
    suite = ET.Element("testsuite", name=_text(f"agent-ab {verdict.run}"))
    failures = 0
    for check in verdict.checks:
        case = ET.SubElement(suite, "testcase", classname=_text(check.task), name=_text(check.check))
        facts = f"broken in {check.broken} and fixed in {check.fixed} of {counted(check.pairs, 'pair')}, Holm p {check.p_holm:.3g}"
        if check.regressed:
            failures += 1
            ET.SubElement(case, "failure", type="regressed", message=f"regressed: {facts}")
        else:
            ET.SubElement(case, "system-out").text = f"observed, not more than that: {facts}"
    for task, check_id in verdict.quarantined:
        case = ET.SubElement(suite, "testcase", classname=_text(task), name=_text(check_id))
        ET.SubElement(case, "skipped", message="quarantined: gave two verdicts on one snapshot in the A/A run")
    for task, check_id in verdict.unchanged:
        ET.SubElement(suite, "testcase", classname=_text(task), name=_text(check_id))
    own = ET.SubElement(suite, "testcase", classname="agent-ab", name="verdict")
    text = "\n".join(_text(line) for line in (*verdict.reasons, *verdict.warnings))
    if verdict.decision is not Decision.ADOPT:
        kind = "error" if verdict.decision is Decision.INVALID else "failure"
        told = ET.SubElement(own, kind, type=verdict.decision.value, message=_text(verdict.reasons[0]))
        told.text = text
        failures += kind == "failure"
    else:
        ET.SubElement(own, "system-out").text = text
    suite.set("tests", str(len(suite.findall("testcase"))))
    suite.set("failures", str(failures))
    suite.set("errors", str(int(verdict.decision is Decision.INVALID)))
    suite.set("skipped", str(len(verdict.quarantined)))
    ET.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"


def _text(untrusted: str) -> str:
    return plain_line(untrusted).translate(_NONCHARACTERS)
