"""Lays the workspace out again from its packed crates alone.

    unpack.py PACKAGES COPY

PACKAGES is where `cargo package` left the .crate files; COPY becomes a workspace in which every
crate has a folder of its own and holds what its package holds. A file that a crate uses but does
not pack (SQL above its folder, say) is missed when COPY is compiled, and not by the first user.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

packages, copy = map(pathlib.Path, sys.argv[1:])
command = ["cargo", "metadata", "--format-version", "1", "--no-deps"]
crates = json.loads(subprocess.check_output(command))["packages"]
folder = {crate["name"]: f"{crate['name']}-{crate['version']}" for crate in crates}
# A patch that nothing depends on would change the lock file, so only these get one.
depended_on = {dep["name"] for crate in crates for dep in crate["dependencies"] if dep.get("path")}

shutil.rmtree(copy, ignore_errors=True)
copy.mkdir(parents=True)
for name in folder.values():
    with tarfile.open(packages / f"{name}.crate") as crate:
        crate.extractall(copy, filter="data")

# The profiles are the root's alone; with others every dependency would be compiled a second time.
root = pathlib.Path("Cargo.toml").read_text()
profiles = re.findall(r"^\[profile.*?(?=^\[(?!profile)|\Z)", root, re.MULTILINE | re.DOTALL)
lines = [
    "[workspace]",
    'resolver = "3"',
    f"members = {json.dumps(sorted(folder.values()))}",
    "[patch.crates-io]",
    *(f"{name} = {{ path = {json.dumps(folder[name])} }}" for name in sorted(depended_on)),
    *profiles,
]
(copy / "Cargo.toml").write_text("\n".join(lines) + "\n")
shutil.copy("Cargo.lock", copy)
