"""Finds NATS micro services, as ADR-32 of NATS says, without anything of putex: prints each answer
to PING, INFO and STATS as a line of JSON. Arguments: the port of the server, the number of services
that are expected, and perhaps the name of a service.

Ends with 1 if an answer is not of the form that ADR-32 demands."""

import json
import re
import socket
import sys

SEMVER = r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?"
OF_ALL = {"type": str, "name": str, "id": str, "version": str, "metadata": dict}
OF_KIND = {
    "PING": {},
    "INFO": {"description": str, "endpoints": list},
    "STATS": {"started": str, "endpoints": list},
}
OF_ENDPOINT = {
    "INFO": {"name": str, "subject": str, "queue_group": str, "metadata": dict},
    "STATS": {
        "name": str, "subject": str, "queue_group": str, "num_requests": int, "num_errors": int,
        "last_error": str, "processing_time": int, "average_processing_time": int,
    },
}


def demand(value, members, what):
    for name, kind in members.items():
        if not isinstance(value.get(name), kind):
            sys.exit(f"{what}: {name} is no {kind.__name__}: {value}")


def check(answer, kind):
    demand(answer, OF_ALL | OF_KIND[kind], kind)
    if answer["type"] != f"io.nats.micro.v1.{kind.lower()}_response":
        sys.exit(f"{kind}: the type is {answer['type']}")
    if not re.fullmatch(r"[a-zA-Z0-9_-]+", answer["name"]):
        sys.exit(f"{kind}: the name is {answer['name']}")
    if not re.fullmatch(SEMVER, answer["version"]):
        sys.exit(f"{kind}: the version is {answer['version']}")
    if not all(isinstance(value, str) for value in answer["metadata"].values()):
        sys.exit(f"{kind}: the metadata are {answer['metadata']}")
    for endpoint in answer.get("endpoints", []):
        demand(endpoint, OF_ENDPOINT[kind], f"{kind} of an endpoint")


def main(port, count, name=None):
    connection = socket.create_connection(("127.0.0.1", int(port)), timeout=60)
    stream = connection.makefile("rwb")
    stream.readline()
    stream.write(b'CONNECT {"verbose":false,"pedantic":true,"protocol":1}\r\nSUB _INBOX.py.* 1\r\n')
    for kind in OF_KIND:
        subject = ".".join(part for part in ["$SRV", kind, name] if part)
        stream.write(f"PUB {subject} _INBOX.py.{kind} 0\r\n\r\n".encode())
    stream.flush()
    waited = int(count) * len(OF_KIND)
    while waited:
        words = stream.readline().split()
        if not words or words[0] == b"-ERR":
            sys.exit(f"the server says {words}")
        if words[0] == b"PING":
            stream.write(b"PONG\r\n")
            stream.flush()
        if words[0] == b"MSG":
            payload = stream.read(int(words[-1]) + 2)
            answer = json.loads(payload)
            check(answer, words[1].decode().rsplit(".", 1)[1])
            print(json.dumps(answer))
            waited -= 1


main(*sys.argv[1:])
