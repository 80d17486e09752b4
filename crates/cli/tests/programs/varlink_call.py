"""Calls a method of io.tompion.Supervisor1 and prints the reply: SOCKET METHOD PARAMETERS."""

import json
import socket
import sys

path, method, parameters = sys.argv[1:]
connection = socket.socket(socket.AF_UNIX)
connection.connect(path)
call = {"method": "io.tompion.Supervisor1." + method, "parameters": json.loads(parameters)}
connection.sendall(json.dumps(call).encode() + b"\0")
reply = b""
while not reply.endswith(b"\0"):
    more = connection.recv(65536)
    if not more:
        sys.exit("no reply")
    reply += more
print(reply[:-1].decode())
