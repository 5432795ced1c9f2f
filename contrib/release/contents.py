"""Tells what is in a binary of putex: contents.py SBOM LICENSES

Writes the packages that are compiled into it, by `cargo metadata`, as a list in the format of
CycloneDX, and copies their licences into a folder. Without times and random numbers: the same
sources give the same list.
"""

import json
import os
import shutil
import subprocess
import sys
import tomllib

LICENCE_NAMES = ("license", "licence", "copying", "notice", "copyright", "unlicense")


def compiled(metadata):
    """Returns the packages that the program is made of, in the order of their names."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    root = metadata["resolve"]["root"]
    reached, rest = set(), [root]
    while rest:
        package = rest.pop()
        if package in reached:
            continue
        reached.add(package)
        for dependency in nodes[package]["deps"]:
            # Tests and build scripts leave nothing in the program.
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                rest.append(dependency["pkg"])
    packages = [package for package in metadata["packages"] if package["id"] in reached]
    packages.sort(key=lambda package: (package["name"], package["version"]))
    own = next(package for package in packages if package["id"] == root)
    return own, [package for package in packages if package["id"] != root]


def component(package, kind, checksums):
    name, version = package["name"], package["version"]
    purl = f"pkg:cargo/{name}@{version}"
    described = {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl}
    if package["license"]:
        # The slash is an old way to write OR.
        expression = package["license"].replace("/", " OR ")
        described["licenses"] = [{"expression": expression}]
    if checksum := checksums.get((name, version)):
        described["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return described


def main():
    sbom, licences = sys.argv[1:]
    command = ["cargo", "metadata", "--locked", "--format-version", "1"]
    # The packages do not differ between the processors.
    command += ["--filter-platform", "x86_64-unknown-linux-musl"]
    metadata = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    with open("Cargo.lock", "rb") as lock:
        locked = tomllib.load(lock)["package"]
    checksums = {(it["name"], it["version"]): it.get("checksum") for it in locked}
    own, packages = compiled(metadata)
    described = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": component(own, "application", checksums)},
        "components": [component(package, "library", checksums) for package in packages],
    }
    with open(sbom, "w", encoding="utf-8") as file:
        json.dump(described, file, indent=1)
        file.write("\n")
    for package in packages:
        source = os.path.dirname(package["manifest_path"])
        into = os.path.join(licences, f"{package['name']}-{package['version']}")
        os.makedirs(into)
        for name in sorted(os.listdir(source)):
            path = os.path.join(source, name)
            if name.lower().startswith(LICENCE_NAMES) and os.path.isfile(path):
                shutil.copyfile(path, os.path.join(into, name))
        if not os.listdir(into):
            with open(os.path.join(into, "LICENSE"), "w", encoding="utf-8") as file:
                file.write(f"{package['license']}\n{package['repository'] or ''}\n")


main()
