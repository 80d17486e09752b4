"""A client of the documented protocol: looks at a recording, changes its rules, and ends it."""
import json
import socket
import sys

RECORDING = "io.tompion.Recording1."


class Refused(Exception):
    pass


def call(connection, method, **parameters):
    message = {"method": method, "parameters": parameters}
    connection.sendall(json.dumps(message).encode() + b"\0")
    reply = b""
    while not reply.endswith(b"\0"):
        more = connection.recv(65536)
        if not more:
            raise ConnectionError("no reply")
        reply += more
    reply = json.loads(reply[:-1])
    if "error" in reply:
        raise Refused(reply["error"].rsplit(".")[-1])
    return reply.get("parameters", {})


def main():
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[1])
    info = call(connection, "org.varlink.service.GetInfo")
    print(info["interfaces"][1])
    status = call(connection, RECORDING + "GetStatus")["status"]
    print(status["name"], status["processes"][0]["name"])
    try:
        call(connection, RECORDING + "SetRules", rules={"include": ["*"], "level": 99})
    except Refused as refused:
        print(refused)
    change = call(connection, RECORDING + "SetRules", rules={"include": ["ticker:tock"], "level": 14})
    print(change["current"], change["pending"], change["fixed"])
    print(*call(connection, RECORDING + "GetStatus")["status"]["rules"]["include"])
    try:
        call(connection, RECORDING + "SaveSnapshot")
    except Refused as refused:
        print(refused)
    call(connection, RECORDING + "Stop")
    print("stopped")


main()
