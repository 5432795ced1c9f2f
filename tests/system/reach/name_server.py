"""A name server that knows n1.test to n3.test: name_server.py ADDRESS"""

import socket
import struct
import sys

server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((sys.argv[1], 53))
while True:
    query, client = server.recvfrom(4096)
    at, labels = 12, []
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode())
        at += 1 + query[at]
    question = query[12 : at + 5]
    kind = struct.unpack(">H", query[at + 1 : at + 3])[0]
    host = {"n1.test": 1, "n2.test": 2, "n3.test": 3}.get(".".join(labels).lower())
    # It is found and has no other kind of address, or it does not exist.
    answers, status = b"", 0 if host else 3
    if host and kind == 1:
        answers = struct.pack(">HHHIHBBBB", 0xC00C, 1, 1, 60, 4, 10, 66, 0, host)
    counts = struct.pack(">HHHH", 1, 1 if answers else 0, 0, 0)
    flags = struct.pack(">H", 0x8580 | status)
    server.sendto(query[:2] + flags + counts + question + answers, client)
