"""Keeper that hands over descriptors which are not what they should be.

fake_keeper.py NAME ID: listens as the keeper NAME of the recording ID, for one recorder.
"""

import array
import os
import socket
import struct
import sys

RECORDING, LISTENER, PROCESS, COMPLETE = 101, 102, 103, 104


def message(number, key=0, text=""):
    return struct.pack("<IIQ", number, 1, key) + text.encode()


def send(recorder, packet, descriptors):
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
    recorder.sendmsg([packet], rights if descriptors else [])


def main():
    name, recording = sys.argv[1:3]
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind("\0" + name)
    listener.listen()
    recorder, _ = listener.accept()
    ours, _theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    file = os.open("/dev/null", os.O_RDWR)
    # Of the right size by chance, and not sealed.
    memory = os.memfd_create("rings")
    watch = os.pidfd_open(os.getpid())
    send(recorder, message(RECORDING, text=recording), [])
    send(recorder, message(LISTENER, 0), [file])
    send(recorder, message(LISTENER, 1), [ours.fileno()])
    send(recorder, message(PROCESS, 7), [ours.fileno(), memory])
    send(recorder, message(PROCESS, 8), [ours.fileno(), memory, memory, file])
    # The first process of the recording, with the connection of another one.
    for key in range(1, 4):
        send(recorder, message(PROCESS, key), [ours.fileno(), memory, memory, watch])
    send(recorder, message(COMPLETE), [])
    # Until the recorder ends the keeper.
    while recorder.recv(4096):
        pass


main()
