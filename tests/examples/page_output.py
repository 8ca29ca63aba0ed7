#!/usr/bin/env python3
"""page_output.py PAGE SOURCE PROGRAM: holds a page of the documentation to the example that it shows.

The part of PAGE from `<!-- examples/NAME -->`, where NAME is that of SOURCE, to `<!-- end -->` is compared: each cpp block
stands in SOURCE, up to white space, and the text blocks together are what PROGRAM prints.
"""

import pathlib
import re
import subprocess
import sys

page, source, program = sys.argv[1:]
text = pathlib.Path(page).read_text()
start = f"<!-- examples/{pathlib.Path(source).name} -->\n"
if start not in text:
    sys.exit(f"{page} has no line {start.strip()}")
part = text.split(start, 1)[1].split("<!-- end -->\n", 1)[0]
blocks = re.findall(r"^```(\w+)\n(.*?)^```$", part, re.M | re.S)
squeezed = "".join(pathlib.Path(source).read_text().split())

problems = []
for kind, block in blocks:
    if kind == "cpp" and "".join(block.split()) not in squeezed:
        problems.append(f"not in {source}:\n{block}")

shown = "".join(block for kind, block in blocks if kind == "text")
printed = subprocess.run([program], capture_output=True, text=True, encoding="utf-8", check=True).stdout
if not shown:
    problems.append("no block of output")
if shown != printed:
    problems.append(f"shown:\n{shown}\nprinted:\n{printed}")
sys.exit("\n".join(problems) or 0)
