"""Opens connections and keeps them until its input ends: SOCKET NUMBER. Half of them send the begin
of a call."""

import socket
import sys

path, number = sys.argv[1:]
connections = []
for index in range(int(number)):
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(10)
    connection.connect(path)
    if index % 2:
        try:
            connection.sendall(b'{"method":')
        except OSError:
            pass
    connections.append(connection)
print("ready", flush=True)
sys.stdin.read()
