"""An agent of before events could be counted in place: joins its session and prints how many files
it got."""
import array, os, socket, struct

text = lambda value: struct.pack("<I", len(value)) + value
RSEQ, TSC, NO_LISTENER = 1, 2, 4
session = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
session.connect("\0" + os.environ["TOMPION_SESSION"].split(":")[-1])
hello = struct.pack("<IIIII", 1, 1, os.getpid(), 0, RSEQ | TSC | NO_LISTENER)
session.send(hello + text(b"0.1.0") + text(b"old") + text(b"/bin/old"))
message, files, _, _ = socket.recv_fds(session, 4096, 8)
kind, = struct.unpack_from("<I", message)
print(kind, len(files), flush=True)
