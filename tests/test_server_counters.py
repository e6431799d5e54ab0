"""The counters of both engines, and pages that hold none."""

from agent_ab.model import Drafting
from agent_ab.server.counters import Counters, read

VLLM = """# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
vllm:spec_decode_num_drafts_total{engine="0",model_name="local"} 5.0
vllm:spec_decode_num_drafts_created{engine="0",model_name="local"} 1.7960711602501369e+09
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="local"} 15.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="local"} 10.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="local",position="0"} 4.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="local",position="1"} 3.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="local",position="2"} 3.0
vllm:prefix_cache_hits_total{engine="0",model_name="local"} 0.0
vllm:request_success_total{engine="0",finished_reason="stop",model_name="local"} 1.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="local"} 2.0
vllm:num_requests_running{engine="0",model_name="local"} 0.0
"""
LLAMA = """llamacpp:prompt_tokens_cached_total 7
llamacpp:spec_decode_num_drafts_total 4
llamacpp:spec_decode_num_draft_tokens_total 12
llamacpp:spec_decode_num_accepted_tokens_total 9
llamacpp:requests_processing 1
"""


def test_vllm_counts_drafts_by_position_and_requests_by_reason() -> None:
    found = read(VLLM)
    assert (found.drafts, found.drafted, found.accepted, found.accepted_at) == (5, 15, 10, {0: 4, 1: 3, 2: 3})
    assert (found.cached, found.finished, found.serving) == (0, 3, 0)


def test_llama_server_counts_under_the_same_names() -> None:
    assert read(LLAMA) == Counters(drafts=4, drafted=12, accepted=9, cached=7, serving=1)


def test_a_difference_is_what_was_drafted_in_between() -> None:
    before = Counters(drafts=2, drafted=6, accepted=4, accepted_at={0: 2, 1: 1, 2: 1})
    assert read(VLLM).since(before) == Drafting(drafts=3, drafted=9, accepted=6, accepted_at=(2, 2, 2))
    assert read(VLLM).since(Counters()) == Drafting(5, 15, 10, (4, 3, 3))


def test_a_server_that_does_not_count_has_no_difference() -> None:
    assert read("").since(Counters()) is None
    assert read("<html>not found</html>") == Counters()


def test_what_is_no_count_is_passed_over() -> None:
    assert (
        read("vllm:request_success_total NaN\nvllm:request_success_total +Inf\nother:request_success_total 3\n")
        == read("vllm:request_success_total 1e300\nvllm:request_success_total -1e17\n")
        == Counters()
    )
