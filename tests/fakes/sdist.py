"""Write a small real sdist that stands for llama-cpp-python's: pip downloads it, cmake builds its llama-server in a second."""

import io
import tarfile
from pathlib import Path

NAME = "llama_cpp_python-0.3.36"
METADATA = "Metadata-Version: 2.1\nName: llama_cpp_python\nVersion: 0.3.36\n"
BACKEND = f"""
from pathlib import Path

def get_requires_for_build_wheel(config_settings=None):
    return []

def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    info = Path(metadata_directory) / "{NAME}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text({METADATA!r})
    return info.name

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    raise SystemExit("a download builds no wheel")
"""
CMAKE = """
cmake_minimum_required(VERSION 3.14)
project(tiny CXX)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
add_library(llama SHARED llama.cpp)
set_target_properties(llama PROPERTIES VERSION 0.5.0 SOVERSION 0)
add_executable(llama-server server.cpp)
target_link_libraries(llama-server llama)
"""
LIBRARY = """
#include <cstdio>
void tell(bool help) {
    if (help) std::puts("--spec-type none,draft-mtp     types (default: none)\\n-np,   --parallel N    slots");
    else std::fputs("version: 0.5.0-dev (build 7, commit abc1234)\\n", stderr);
}
"""
SERVER = """
#include <cstring>
void tell(bool help);
int main(int argc, char ** argv) { tell(argc > 1 && !std::strcmp(argv[1], "--help")); }
"""
FILES = {
    "PKG-INFO": METADATA,
    "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    '[project]\nname = "llama_cpp_python"\nversion = "0.3.36"\n',
    "backend.py": BACKEND,
    "vendor/llama.cpp/CMakeLists.txt": CMAKE,
    "vendor/llama.cpp/llama.cpp": LIBRARY,
    "vendor/llama.cpp/server.cpp": SERVER,
}


def write(folder: Path, replaced: dict[str, str] | None = None) -> Path:
    """Write the sdist into `folder`, some of its files replaced or added, and return its path."""
    path = folder / f"{NAME}.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, text in (FILES | (replaced or {})).items():
            member = tarfile.TarInfo(name if name.startswith((".", "/")) else f"{NAME}/{name}")
            member.size, member.mtime = len(text.encode()), 1_667_952_000
            tar.addfile(member, io.BytesIO(text.encode()))
    return path
