"""Reading a llama-server's log. The excerpts are a real server's (build 1, 0c1e570)."""

import pytest

from agent_ab.server import log

CANARY = """0.00.223.316 I srv  server_strea: conv_id= (empty=1)
0.00.223.933 I slot launch_slot_: id  0 | task 0 | processing task, is_child = 0
"""
CHAT = """0.00.174.951 I srv  server_strea: conv_id= (empty=1)
0.00.175.145 I srv    operator(): chat format: peg-native
0.00.175.493 I slot launch_slot_: id  0 | task 3 | processing task, is_child = 0
0.00.209.581 I slot      release: id  0 | task 3 | stop processing: n_tokens = 34, truncated = 0
"""
NOT_JSON = '0.00.539.244 W srv    operator(): got exception: {"error":{"code":500,"message":"[json.exception.parse_error.101]"}}\n'
BAD_VALUE = "0.01.212.753 I srv  server_strea: conv_id= (empty=1)\n"
TOO_LONG = """0.01.893.289 I srv  server_strea: conv_id= (empty=1)
0.01.895.515 I srv    operator(): chat format: peg-native
0.01.896.103 I slot launch_slot_: id  0 | task 8 | processing task, is_child = 0
0.01.896.187 E srv    send_error: task id = 8, error: request (6020 tokens) exceeds the available context size (4096 tokens)
0.01.896.249 W srv          stop: cancel task, id_task = 8
"""
CUT = """0.02.571.205 I srv  server_strea: conv_id=abc (empty=0)
0.02.571.953 I slot launch_slot_: id  0 | task 11 | processing task, is_child = 0
0.02.715.397 W srv          stop: cancel task, id_task = 11
"""
UNAUTHORIZED = "0.02.224.002 W srv    operator(): unauthorized: Invalid API Key\n"


def counted(text: str) -> int:
    counter = log.request_counter(CANARY)
    assert counter and counter.name == "conv_id lines"
    return counter.count(text)


@pytest.mark.parametrize("request_", [CHAT, NOT_JSON, BAD_VALUE, TOO_LONG, CUT])
def test_a_request_counts_once_whatever_came_of_it(request_: str) -> None:
    assert counted(request_) == 1
    assert counted(CHAT + request_ + CANARY) == 3


def test_what_never_reached_the_handler_does_not_count() -> None:
    assert counted(UNAUTHORIZED + "0.00.1 I srv  update_slots: all slots are idle\n") == 0


def test_a_line_that_a_prompt_smuggled_in_does_not_count() -> None:
    assert counted("parse: error parsing grammar: srv  server_strea: conv_id= (empty=1)\n") == 0


def test_builds_with_request_lines_are_counted_by_them() -> None:
    old = "srv  log_server_r: request: POST /completion 127.0.0.1 200\nslot launch_slot_: id  0 | task 0 | processing task\n"
    counter = log.request_counter(old)
    assert counter and counter.name == "request lines"
    asked = (
        "srv  log_server_r: request: POST /v1/chat/completions 127.0.0.1 400\n"
        "srv  log_server_r: request: POST /tokenize 127.0.0.1 200\n"
        "srv  log_server_r: request: GET /slots 127.0.0.1 200\n"
    )
    assert counter.count(old + asked) == 2


def test_other_builds_are_counted_by_launched_tasks() -> None:
    counter = log.request_counter("slot launch_slot_: id  0 | task 0 | processing task\n")
    assert counter and counter.name == "launched tasks"
    assert counter.count("slot launch_slot_: id  0 | task -1 | sampler chain: dist\n") == 0
    assert log.request_counter("nothing of use\n") is None


def test_the_servers_words_about_speculation_are_found_without_their_timestamps() -> None:
    text = """0.00.031.184 I spec common_specu: adding speculative implementation 'draft-mtp'
0.00.031.355 W spec common_specu: synthetic speculative acceptance is enabled for benchmarking; generated output is not valid
0.00.031.387 I spec common_specu: synthetic acceptance: n_max = 3, mean length = 4.000000, rates = [1, 1, 1]
"""
    assert log.speculation_types(text) == ("draft-mtp",)
    assert log.speculation_line(text) == (
        "adding speculative implementation 'draft-mtp' | "
        "synthetic acceptance: n_max = 3, mean length = 4.000000, rates = [1, 1, 1]"
    )
    assert log.speculation_line(CHAT) == "" and log.speculation_types(CHAT) == ()


@pytest.mark.parametrize(
    ("code", "text", "words"),
    [
        (1, "0.00.1 E srv  start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080", "the port is taken"),
        (1, "error: invalid argument: --nonsense", "does not know the option --nonsense"),
        (1, 'error while handling argument "--spec-type": unknown speculative type: mtp\n\nusage:', "--spec-type was refused"),
        (1, "W llama_init_from_model: context type MTP requested but model doesn't contain MTP layers", "has no MTP block"),
        (1, "0.02.5 E llama_init_from_model: failed to initialize the context: std::bad_alloc", "ran out of memory"),
        (1, "ggml_cuda: cudaMalloc failed: out of memory", "use a smaller context or fewer GPU layers"),
        (-6, "CUDA error: an illegal memory access was encountered", "CUDA error: an illegal memory access"),
        (1, "E gguf_init_from_file: failed to open GGUF file 'none.gguf' (No such file or directory)", "cannot open none.gguf"),
        (1, "tensor 'x' data is not within the file bounds, model is corrupted", "the model file is damaged"),
        (127, "llama-server: error while loading shared libraries: libllama.so.0: cannot open", "lacks the shared library libllama"),
        (-4, "", "SIGILL: the binary was built for another CPU"),
        (-9, "", "killed, as the kernel does when memory is short"),
        (-11, "", "SIGSEGV"),
        (-6, "llama-sampler.cpp:1: GGML_ASSERT(found) failed", "an assertion failed"),
        (3, "something new\n", "status 3: something new"),
    ],
)  # fmt: skip
def test_an_end_is_explained_in_words(code: int, text: str, words: str) -> None:
    assert words in log.explain_exit(code, text)


def test_the_first_error_lines_are_quoted_without_timestamps() -> None:
    text = "0.00.1 I fine\n0.00.2 E first: bad\n0.00.3 E second: worse\n0.00.4 I cleaning up\n0.00.5 E third\n0.00.6 E fourth\n"
    assert log.explain_exit(1, text) == "status 1: first: bad | second: worse | third"
