"""A client of the documented protocol: watches the triggers of a recording, and fires one."""
import json
import socket
import sys

RECORDING = "io.tompion.Recording1."


def connect():
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[1])
    return connection


def send(connection, method, more=False, **parameters):
    call = {"method": RECORDING + method, "parameters": parameters, "more": more}
    connection.sendall(json.dumps(call).encode() + b"\0")


def replies(connection):
    buffer = b""
    while True:
        *messages, buffer = buffer.split(b"\0")
        for message in messages:
            yield json.loads(message)
        received = connection.recv(65536)
        if not received:
            return
        buffer += received


watch, control = connect(), connect()
send(watch, "WatchTriggers", more=True)
firings = replies(watch)
assert "firing" not in next(firings).get("parameters", {})
for word in ("slow", "slow", "other"):
    send(control, "FireTrigger", word=word)
    reply = next(replies(control))
    print(reply.get("error") or reply["parameters"]["fired"])
firing = next(firings)["parameters"]["firing"]
print(firing["cause"], firing["suppressed"])
