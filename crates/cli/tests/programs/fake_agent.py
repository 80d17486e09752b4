"""What no sound agent says to a session, or only one of before: fake_agent.py WHAT PROGRAM…, then
PROGRAM as its neighbour."""
import os, random, socket, struct, subprocess, sys

def knock():
    caller = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    caller.connect("\0" + os.environ["TOMPION_SESSION"].split(":")[-1])
    return caller

def say(packet):
    caller = knock()
    caller.send(packet)
    return caller.recv(65536)

def garbage():
    noise = random.Random(7)
    for size in [1, 3, 4, 7, 8, 9, 100, 1000, 16384, 40000]:
        say(noise.randbytes(size))
    hello = struct.pack("<IIIII", 1, 1, os.getpid(), 0, 3)
    say(hello + struct.pack("<I", 0xFFFFFFFF) + b"0.1.0")
    knock().close()

def hello():
    text = lambda word: struct.pack("<I", len(word)) + word
    caller = knock()
    caller.send(struct.pack("<IIIII", 1, 1, os.getpid(), 0, 3) + text(b"0.0.9") + text(b"old") + text(b"/old"))
    _, files, _, _ = socket.recv_fds(caller, 65536, 4)
    print("control", os.fstat(files[0]).st_size, flush=True)
    return caller

what, *program = sys.argv[1:]
waiting = None
if what == "version":
    answer = say(struct.pack("<II", 1, 9) + b"anything")
    print(struct.unpack_from("<I", answer)[0], answer[12:].decode())
elif what == "garbage":
    garbage()
elif what == "hello":
    waiting = hello()
elif what == "silence":
    waiting = [knock() for _ in range(3)]
sys.exit(subprocess.run(program).returncode)
