"""The machine on which something was measured."""

import os
import pathlib
import platform

# What decides how fast matrix products of each precision are, from the oldest to the newest.
_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_int8")


def describe_machine() -> str:
    """Cores, the processor's name and its vector instructions, such as `2 cores, AMD EPYC (avx2)`."""
    facts = pathlib.Path("/proc/cpuinfo")
    lines = facts.read_text().splitlines() if facts.exists() else []
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    name = fields.get("model name") or platform.processor() or platform.machine()
    flags = [flag for flag in _FLAGS if flag in fields.get("flags", "").split()]
    return f"{os.cpu_count()} cores, {name} ({', '.join(flags) or 'vector instructions unknown'})"
